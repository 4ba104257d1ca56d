/* SPDX-License-Identifier: Apache-2.0
 * A case whose numbers a test chooses itself, run and read back: for faults and for laws. */
#ifndef TESSERA_TESTS_CONFORMANCE_SCENE_H
#define TESSERA_TESTS_CONFORMANCE_SCENE_H

#include "tests/conformance/subject.h"
#include "tests/kit/case.h"
#include "tests/kit/fill.h"

/* Shape, options and layout are those of a problem line, and so are guard pages, canaries and the
 * poison in storage that nobody may use. The numbers are those of the line's fill until
 * tess_scene_set() gives others. */
typedef struct tess_scene {
    const tess_subject *subject;
    tess_case c;
    tess_plan *plan;
    tess_queue *queue;
    bool borrows_queue; /* set queue and this to run on another scene's */
} tess_scene;

/* The value of one element. For K and V `row` is the column; for the bias `row` and `dim` are row
 * and column; for slopes and sinks only sequence and head count. */
typedef double (*tess_scene_fn)(tess_place place, const void *user);

/* Makes a scene of a line written as printf() would; ends the program when the line is wrong. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
tess_scene *
tess_scene_make(const tess_subject *subject, const char *format, ...);
void tess_scene_free(tess_scene *scene);

/* A scene of a backward line: every gradient there is, in its tensor's type, with dLSE as an input
 * or without. A backward line given to tess_scene_make() has none. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
tess_scene *
tess_scene_make_backward(const tess_subject *subject, bool from_lse, const char *format, ...);

/* Sets the used elements of a tensor: TESS_CASE_Q, _K, _V, _BIAS, _SLOPES, _SINK, _D_O, _D_LSE.
 * Keys that no row sees keep their poison. A bias is set wherever it has an element. */
void tess_scene_set(tess_scene *scene, int which, tess_scene_fn value, const void *user);

/* Sets every element to one number. */
void tess_scene_set_all(tess_scene *scene, int which, double value);

/* Sets one element, of a key that no row sees too. */
void tess_scene_put(tess_scene *scene, int which, tess_place place, double value);

/* An element as it is stored, of an output too: O, LSE, DQ, DK, DV, DBIAS, DSLOPES, DSINK. */
double tess_scene_get(const tess_scene *scene, int which, tess_place place);

/* Copies what one sequence holds to a sequence of another scene that has as many rows, columns and
 * dims: Q, K, V, and bias, slopes and sinks where both have them. */
void tess_scene_copy(const tess_scene *from, int64_t from_sequence, tess_scene *to,
                     int64_t to_sequence);

/* Replaces every NaN and infinity of the inputs by 0, unused storage included. */
void tess_scene_clean(tess_scene *scene);

/* Plans on the first call, runs, reads back. Of a backward line the forward pass runs first. False,
 * with the failure counted and printed, when that does not succeed. Changes of numbers between runs
 * are seen; changes of c.desc are not. */
bool tess_scene_run(tess_scene *scene);

/* Elements of the last run's outputs. */
double tess_scene_o(const tess_scene *scene, int64_t sequence, int64_t row, int64_t head,
                    int64_t dim);
double tess_scene_lse(const tess_scene *scene, int64_t sequence, int64_t row, int64_t head);

/* Compares the last run with the oracle; counts and prints when it is wrong. */
bool tess_scene_is_right(tess_scene *scene);

/* Counts and prints unless one sequence has the same O and LSE, bit for bit, in both scenes. */
bool tess_scene_same_bits(const tess_scene *a, int64_t sequence_a, const tess_scene *b,
                          int64_t sequence_b, const char *what);

/* The same for dQ, dK and dV. */
bool tess_scene_same_gradients(const tess_scene *a, int64_t sequence_a, const tess_scene *b,
                               int64_t sequence_b, const char *what);

/* What the budget of compare.h allows between a result of this scene's type and the truth, given
 * the largest score and value, for a result `expected`; LSE likewise. */
double tess_scene_allows(const tess_scene *scene, double score, double value, double expected);
double tess_scene_allows_lse(const tess_scene *scene, double expected);

/* Largest difference in O, or in LSE, between two scenes of the same extents: infinite where one is
 * NaN or infinite and the other is not the same. */
double tess_scene_distance(const tess_scene *a, const tess_scene *b);
double tess_scene_distance_lse(const tess_scene *a, const tess_scene *b);

/* ---- Failures -------------------------------------------------------------------------------- */

/* Counts a failure of the running test and prints it with the test's name, the device and, unless
 * scene is NULL, the scene's line. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void tess_scene_fail(const tess_scene *scene, const char *format, ...);

/* Fails unless |got - expected| <= allowed; equal infinities are equal, and 0 allows no other bit.
 */
void tess_scene_expect(const tess_scene *scene, const char *what, double got, double expected,
                       double allowed);

/* One test of a program. */
typedef struct tess_scene_test {
    const char *name;
    void (*run)(const tess_subject *subject);
} tess_scene_test;

/* The body of main(): runs every test on every device. The first argument names a backend, a second
 * one a test. */
int tess_scene_main(const tess_scene_test *tests, size_t count, int argc, char **argv);

#endif
