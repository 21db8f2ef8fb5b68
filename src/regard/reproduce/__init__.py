"""The paper's tables, made again: `regard reproduce`, with the printed numbers beside ours.

Each row is a run directory, and is done once, by any of several processes (`regard.study`). Each
module uses those before it:

    scales, small, wmt      the text of each size, and the recipe in the place of base
    rows                    a row as a recipe of any size, and its training
    chart, tables           a table as Markdown, JSON, a drawing and a page
    layers -> path, costs   the layers of Table 1, and what is measured of them
    prepared, parsers       data, prepared once
    table1 to 4, figures    the tables, and Figures 1 to 5
    sentences -> report     what the paper says of its tables, with verdicts
    plan                    what a study would take
    registry, study         all of them by name; how they are made
"""
