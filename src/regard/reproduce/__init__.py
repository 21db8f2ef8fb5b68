"""Make the paper's tables again, with the paper's numbers beside ours: `regard reproduce`.

A scale is a size at which the tables are made, such as `mini` or `paper`. Each training of a table
is done once for each seed, by one of several processes (`regard.parts`). In this list, a module
uses only modules that come before it:

    scales, small, wmt      the text of each scale, and the recipe in place of the base model
    rows, tried             a table's row as a recipe at any scale; the choice among recipes
    chart, tables           a table as Markdown, JSON, a drawing and a page
    layers, path, costs     the layers of Table 1, and the measures of their cost
    prepared, parsers       the data of translation, prepared once; the parsers and their data
    table1 to 4, figures    the tables, and Figures 1 to 5
    sentences, report       the paper's sentences about its tables, with verdicts
    plan                    the time, the cost and the disk space that the tables would take
    registry, making        scales and tables by name; how the tables are made
"""
