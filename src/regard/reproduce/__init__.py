"""Make the paper's tables again, with the paper's numbers beside ours: `regard reproduce`.

Each row is trained once, in its run directory, by any of several processes (`regard.study`). In
this list, a module uses only modules above it:

    scales, small, wmt      the text of each size, and the recipe in the place of base
    rows                    a row as a recipe of any size, and its training
    chart, tables           a table as Markdown, JSON, a drawing and a page
    layers -> path, costs   the layers of Table 1, and what is measured of them
    prepared, parsers       data, prepared once
    table1 to 4, figures    the tables, and Figures 1 to 5
    sentences -> report     what the paper says of its tables, with verdicts
    plan                    the time, the cost and the disk that a study would take
    registry, study         scales and tables by name; how the tables are made
"""
