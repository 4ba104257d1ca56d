/* SPDX-License-Identifier: Apache-2.0
 * The tile map as a picture. */
#include "tools/svg.h"

#include "tools/file.h"

#include <inttypes.h>
#include <string.h>

/* Pixels. The longer side of the map is about MAP whatever the number of tiles. */
enum {
    LEFT = 120,
    TOP = 118,
    MAP = 620,
    SMALLEST_CELL = 6,
    WIDEST = 160,
    HIGHEST = 64,
    BOTTOM = 112
};
enum { LINE_LETTERS = 104, LINES = 3, TICKS = 8 };
enum { NUMBER_WIDTH = 22, NUMBER_HEIGHT = 12 }; /* cells smaller than this have no numbers */

typedef struct picture {
    FILE *out;
    const tool_tiles *tiles;
    int64_t scale, across, down; /* cells */
    int cell_width, cell_height, width, height;
} picture;

/* Blue and orange stay apart for every kind of colour vision; both themes keep the contrast of text
 * on its ground above 4.5 to 1. No custom properties: many viewers do not know them, and those that
 * do not know the media query either still show the light theme. */
static const char STYLE[] =
    "<style>\n"
    "  text { font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; font-size: 13px; }\n"
    "  text.mono { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 11px; }\n"
    "  text.head { font-size: 18px; font-weight: 600; }\n"
    "  text.tick { font-size: 11px; }\n"
    "  text.order { font-size: 10px; text-anchor: middle; dominant-baseline: central; }\n"
    "  .tile { stroke-width: 1; } .share { stroke-width: 2; }\n"
    "  .ground { fill: #ffffff; } .tile { stroke: #ffffff; } .share { stroke: #b3123c; }\n"
    "  text { fill: #1f2933; } text.tick { fill: #5c6773; }\n"
    "  .skipped { fill: #e6eaee; } .masked { fill: #f4a259; } .full { fill: #2a6f97; }\n"
    "  text.on-masked { fill: #1f2933; } text.on-full { fill: #ffffff; }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    .ground { fill: #14181f; } .tile { stroke: #14181f; } .share { stroke: #ff7b93; }\n"
    "    text { fill: #e6e9ef; } text.tick { fill: #a0a9b5; }\n"
    "    .skipped { fill: #272e38; } .masked { fill: #f0b06f; } .full { fill: #7db8d6; }\n"
    "    text.on-masked { fill: #14181f; } text.on-full { fill: #14181f; }\n"
    "  }\n"
    "</style>\n";

static const char *class_of(tool_tile tile)
{
    return tile == TOOL_TILE_FULL ? "full" : tile == TOOL_TILE_MASKED ? "masked" : "skipped";
}

static void put_escaped(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        default:
            fputc(text[i] >= ' ' && text[i] < 127 ? text[i] : '?', out);
        }
    }
}

/* A long problem line over up to LINES lines of text, broken at blanks. */
static void put_problem(const picture *p, const char *text)
{
    int y = 58;

    for (int line = 0; line < LINES && *text; line++, y += 15) {
        size_t length = strlen(text);
        const bool is_cut = line + 1 == LINES && length > LINE_LETTERS;

        if (length > LINE_LETTERS) {
            length = LINE_LETTERS;
            while (length > 1 && text[length] != ' ')
                length--;
            if (length == 1)
                length = LINE_LETTERS;
        }
        fprintf(p->out, "<text class=\"mono\" x=\"20\" y=\"%d\">", y);
        put_escaped(p->out, text, length);
        fprintf(p->out, "%s</text>\n", is_cut ? " ..." : "");
        text += length;
        text += strspn(text, " ");
    }
}

static void put_head(const picture *p, const tool_svg_caption *caption)
{
    fprintf(p->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>Tile map of ",
            p->width, p->height, p->width, p->height);
    put_escaped(p->out, caption->problem, strlen(caption->problem));
    fprintf(p->out,
            "</title>\n<desc>%" PRId64 " by %" PRId64 " tiles: %" PRId64 " full, %" PRId64
            " masked, %" PRId64 " skipped</desc>\n%s<rect class=\"ground\" width=\"%d\" "
            "height=\"%d\"/>\n<text class=\"head\" x=\"20\" y=\"32\">",
            p->tiles->row_tiles, p->tiles->column_tiles, p->tiles->full, p->tiles->masked,
            p->tiles->skipped, STYLE, p->width, p->height);
    put_escaped(p->out, caption->kernel, strlen(caption->kernel));
    fputs(" on ", p->out);
    put_escaped(p->out, caption->device, strlen(caption->device));
    fputs("</text>\n", p->out);
    put_problem(p, caption->problem);
}

static void put_cell(const picture *p, int64_t row, int64_t column)
{
    const tool_tile tile = tool_tiles_cell(p->tiles, p->scale, row, column);
    const int x = LEFT + (int)column * p->cell_width;
    const int y = TOP + (int)row * p->cell_height;
    int64_t split, order;

    fprintf(p->out, "<rect class=\"tile %s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
            class_of(tile), x, y, p->cell_width, p->cell_height);
    if (p->scale > 1 || tile == TOOL_TILE_SKIPPED)
        return;
    tool_tiles_at(p->tiles, row, column, &split, &order);
    if (p->cell_width >= NUMBER_WIDTH && p->cell_height >= NUMBER_HEIGHT)
        fprintf(p->out, "<text class=\"order on-%s\" x=\"%g\" y=\"%g\">%" PRId64 "</text>\n",
                class_of(tile), x + p->cell_width / 2.0, y + p->cell_height / 2.0, order);
}

/* A line where one share of a row tile's columns ends and the next begins. */
static void put_shares(const picture *p, int64_t row)
{
    for (int64_t split = 1; p->scale == 1 && split < p->tiles->splits; split++) {
        const tess_column_walk walk = tool_tiles_walk(p->tiles, row, split);
        const int x = LEFT + (int)walk.first * p->cell_width;
        const int y = TOP + (int)row * p->cell_height;

        if (walk.end > walk.first)
            fprintf(p->out, "<line class=\"share\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", x,
                    y, x, y + p->cell_height);
    }
}

/* Numbers along an axis at whole cells, about TICKS of them. */
static void put_axes(const picture *p)
{
    const int64_t step_x = (p->across + TICKS - 1) / TICKS, step_y = (p->down + TICKS - 1) / TICKS;

    fprintf(p->out, "<text x=\"%d\" y=\"%d\">columns (keys)</text>\n", LEFT, TOP - 22);
    for (int64_t column = 0; step_x && column < p->across; column += step_x)
        fprintf(p->out, "<text class=\"tick\" x=\"%d\" y=\"%d\">%" PRId64 "</text>\n",
                LEFT + (int)column * p->cell_width, TOP - 6,
                column * p->scale * p->tiles->tile_columns);
    fprintf(p->out, "<text x=\"20\" y=\"%d\">rows (queries)</text>\n", TOP - 6);
    for (int64_t row = 0; step_y && row < p->down; row += step_y)
        fprintf(p->out,
                "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%" PRId64 "</text>\n",
                LEFT - 8, TOP + (int)row * p->cell_height + 11,
                tess_walk_query(tool_tiles_rows(p->tiles, row * p->scale).first, p->tiles->group));
}

static void put_legend(const picture *p)
{
    const int y = p->height - BOTTOM + 40;
    const int64_t count[] = {p->tiles->full, p->tiles->masked, p->tiles->skipped};
    static const char *const name[] = {"full", "masked", "skipped"};
    static const char *const meaning[] = {"no mask work", "tested row by row", "never loaded"};

    for (int i = 0; i < 3; i++) {
        const int x = 20 + 230 * i;

        fprintf(p->out,
                "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"16\" height=\"16\" rx=\"3\"/>\n"
                "<text x=\"%d\" y=\"%d\">%s: %" PRId64 "</text>\n"
                "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n",
                name[i], x, y - 13, x + 24, y, name[i], count[i], x + 24, y + 16, meaning[i]);
    }
    fprintf(p->out,
            "<text class=\"tick\" x=\"20\" y=\"%d\">Sequence %" PRId64
            ", one key head; tiles of %" PRId64 " rows by %" PRId64 " columns",
            y + 40, p->tiles->sequence, p->tiles->tile_rows, p->tiles->tile_columns);
    if (p->tiles->group > 1)
        fprintf(p->out, ", %" PRId64 " query heads folded into the rows", p->tiles->group);
    fputs(".</text>\n", p->out);
    if (p->scale > 1)
        fprintf(p->out,
                "<text class=\"tick\" x=\"20\" y=\"%d\">Each cell stands for up to %" PRId64
                " x %" PRId64 " tiles; one that is not all alike is shown as masked.</text>\n",
                y + 56, p->scale, p->scale);
    else
        fprintf(p->out,
                "<text class=\"tick\" x=\"20\" y=\"%d\">Numbers: the order of work%s.</text>\n",
                y + 56, p->tiles->splits > 1 ? "; red lines part the shares of the columns" : "");
}

/* Cells have the shape of their tiles, so that the map has the shape of the score matrix, as far as
 * they stay large enough to be seen. */
static void choose_cells(picture *p)
{
    const tool_tiles *const t = p->tiles;
    const double tile_width = (double)(p->scale * t->tile_columns);
    const double tile_height = (double)(p->scale * t->tile_rows) / (double)t->group;
    const double width = tile_width * (double)p->across, height = tile_height * (double)p->down;
    const double pixel = MAP / (width > height ? width : height > 0 ? height : 1);

    p->cell_width = (int)(tile_width * pixel);
    p->cell_height = (int)(tile_height * pixel);
    p->cell_width = (int)tess_min_i64(tess_max_i64(p->cell_width, SMALLEST_CELL), WIDEST);
    p->cell_height = (int)tess_min_i64(tess_max_i64(p->cell_height, SMALLEST_CELL), HIGHEST);
}

bool tool_svg_write(const char *path, const tool_tiles *tiles, const tool_svg_caption *caption,
                    tess_text *why)
{
    tool_writer writer;
    picture p = {.tiles = tiles, .scale = tool_tiles_scale(tiles, TOOL_SVG_CELLS)};

    if (!tool_writer_open(path, &writer, why))
        return false;
    p.out = writer.stream;
    p.across = (tiles->column_tiles + p.scale - 1) / p.scale;
    p.down = (tiles->row_tiles + p.scale - 1) / p.scale;
    choose_cells(&p);
    p.width = LEFT + (int)tess_max_i64(p.across * p.cell_width, MAP) + 28;
    p.height = TOP + (int)p.down * p.cell_height + BOTTOM;
    put_head(&p, caption);
    for (int64_t row = 0; row < p.down; row++) {
        for (int64_t column = 0; column < p.across; column++)
            put_cell(&p, row, column);
        put_shares(&p, row);
    }
    put_axes(&p);
    put_legend(&p);
    fputs("</svg>\n", p.out);
    return tool_writer_finish(&writer, why);
}
