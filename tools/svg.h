/* SPDX-License-Identifier: Apache-2.0
 * The tile map as a picture. */
#ifndef TESSERA_TOOLS_SVG_H
#define TESSERA_TOOLS_SVG_H

#include "tools/tiles.h"

#include <stdbool.h>

/* Most cells along one side; larger maps are scaled down by whole factors. */
enum { TOOL_SVG_CELLS = 96 };

/* What the picture says in words. */
typedef struct tool_svg_caption {
    const char *problem, *kernel, *device;
} tool_svg_caption;

/* Writes an SVG file that reads well on light and dark grounds. False after having written why. */
bool tool_svg_write(const char *path, const tool_tiles *tiles, const tool_svg_caption *caption,
                    tess_text *why);

#endif
