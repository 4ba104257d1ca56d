/* SPDX-License-Identifier: Apache-2.0
 * Where samples lie. */
#include "bench/spread.h"

#include <math.h>
#include <stdlib.h>

double tess_spread_at(const double *sorted, size_t count, double share)
{
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place;
    const double rest = place - (double)below;

    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + rest * (sorted[below + 1] - sorted[below]);
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static bool spread_of(const double *numerator, const double *denominator, size_t count,
                      tess_spread *out)
{
    double *sorted;
    size_t used = 0;

    *out = (tess_spread){0};
    if (count == 0)
        return true;
    sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return false;
    for (size_t i = 0; i < count; i++) {
        const double sample = denominator ? numerator[i] / denominator[i] : numerator[i];
        if (isfinite(sample) && sample > 0)
            sorted[used++] = sample;
    }
    qsort(sorted, used, sizeof *sorted, compare);
    if (used > 0)
        *out = (tess_spread){sorted[0],
                             tess_spread_at(sorted, used, 0.1),
                             tess_spread_at(sorted, used, 0.5),
                             tess_spread_at(sorted, used, 0.9),
                             sorted[used - 1],
                             (int64_t)used};
    free(sorted);
    return true;
}

bool tess_spread_of(const double *samples, size_t count, tess_spread *out)
{
    return spread_of(samples, NULL, count, out);
}

bool tess_spread_of_ratios(const double *numerator, const double *denominator, size_t count,
                           tess_spread *out)
{
    return spread_of(numerator, denominator, count, out);
}

tess_spread tess_spread_under(double amount, const tess_spread *spread)
{
    if (spread->count == 0)
        return (tess_spread){0};
    return (tess_spread){amount / spread->most, amount / spread->p90,   amount / spread->median,
                         amount / spread->p10,  amount / spread->least, spread->count};
}
