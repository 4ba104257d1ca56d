/* SPDX-License-Identifier: Apache-2.0
 * Trains a transformer layer: attention forward and backward by Tessera, the rest in plain loops.
 *
 *     x = token table[token] + place table[row]       what is read, and where
 *     q, k, v = x Wqkv                                one projection; one buffer holds all three
 *     o = softmax(q k^T / sqrt(DIM), causal) v        Tessera
 *     y = x + o Wout
 *     logits = y Wlogits; loss = mean of -log softmax(logits)[token one row before]
 *
 * A row can only learn what stood before it by looking there, so a falling loss means that the
 * gradients of q, k and v are right; finite differences say the same about every parameter. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

enum {
    BATCH = 4,
    ROWS = 24,
    TOKENS = 12, /* different ones */
    HEADS = 4,
    DIM = 8,
    WIDTH = HEADS * DIM,
    PLACES = BATCH * ROWS,
    STEPS = 80,
    DIRECTIONS = 4 /* in which each matrix is held against finite differences */
};

/* Where each matrix lies in an array of all parameters. */
enum {
    TOKEN_TABLE = 0,
    PLACE_TABLE = TOKEN_TABLE + TOKENS * WIDTH,
    WQKV = PLACE_TABLE + ROWS * WIDTH,
    WOUT = WQKV + WIDTH * 3 * WIDTH,
    WLOGITS = WOUT + WIDTH * WIDTH,
    PARAMETERS = WLOGITS + WIDTH * TOKENS
};

static const struct {
    const char *name;
    int first, end;
} matrices[] = {
    {"token table", TOKEN_TABLE, PLACE_TABLE},
    {"place table", PLACE_TABLE, WQKV},
    {"Wqkv", WQKV, WOUT},
    {"Wout", WOUT, WLOGITS},
    {"Wlogits", WLOGITS, PARAMETERS},
};

/* What a forward pass leaves for the backward pass. */
static struct {
    int token[PLACES];
    float x[PLACES * WIDTH], qkv[PLACES * 3 * WIDTH], o[PLACES * WIDTH], lse[PLACES * HEADS];
    float y[PLACES * WIDTH], chance[PLACES * TOKENS];
    float largest_logit;
} pass;

static float weight[PARAMETERS], gradient[PARAMETERS];

/* ---- Tessera --------------------------------------------------------------------------------- */

static tess_context *context;
static tess_device *device;
static tess_queue *queue;
static tess_plan *forward_plan, *backward_plan;

static void need(tess_status status)
{
    char text[512];
    if (status == TESS_OK)
        return;
    tess_context_error(context, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

static void open_tessera(void)
{
    const tess_layout o = tess_layout_packed(TESS_F32, BATCH, ROWS, HEADS, DIM);
    tess_layout in_qkv = o; /* each row of q is followed by those of k and v */
    tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc), .o = o, .mask = TESS_MASK_CAUSAL};

    in_qkv.seqlen_stride = 3 * WIDTH;
    in_qkv.batch_stride = ROWS * in_qkv.seqlen_stride;
    desc.q = desc.k = desc.v = in_qkv;
    need(tess_context_create(NULL, &context));
    need(tess_device_open(context, NULL, &device));
    need(tess_queue_create(device, &queue));
    need(tess_plan_create_forward(device, &desc, &forward_plan));
    need(tess_plan_create_backward(device, &desc, NULL, &backward_plan));
}

static void close_tessera(void)
{
    tess_plan_destroy(forward_plan);
    tess_plan_destroy(backward_plan);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
}

static void attend(void)
{
    const tess_forward_args args = {
        TESS_STRUCT(tess_forward_args), .q.base = pass.qkv, .k.base = pass.qkv + WIDTH,
        .v.base = pass.qkv + 2 * WIDTH, .o.base = pass.o,   .lse.base = pass.lse};

    need(tess_plan_run_forward(forward_plan, queue, &args));
    need(tess_queue_wait(queue));
}

static void attend_backward(const float *d_o, float *dqkv)
{
    const tess_backward_args args = {TESS_STRUCT(tess_backward_args),
                                     .q.base = pass.qkv,
                                     .k.base = pass.qkv + WIDTH,
                                     .v.base = pass.qkv + 2 * WIDTH,
                                     .o.base = pass.o,
                                     .lse.base = pass.lse,
                                     .d_o.base = d_o,
                                     .dq.base = dqkv,
                                     .dk.base = dqkv + WIDTH,
                                     .dv.base = dqkv + 2 * WIDTH};

    need(tess_plan_run_backward(backward_plan, queue, &args));
    need(tess_queue_wait(queue));
}

/* ---- The layer ------------------------------------------------------------------------------- */

/* c += a b, where a is m x k and b is k x n. */
static void multiply(int m, int k, int n, const float *a, const float *b, float *c)
{
    for (int i = 0; i < m; i++)
        for (int l = 0; l < k; l++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * k + l] * b[l * n + j];
}

/* The way back: given dc, db += a^T dc and da += dc b^T. */
static void multiply_backward(int m, int k, int n, const float *a, const float *b, const float *dc,
                              float *da, float *db)
{
    for (int i = 0; i < m; i++)
        for (int l = 0; l < k; l++) {
            float sum = 0.0f;
            for (int j = 0; j < n; j++) {
                db[l * n + j] += a[i * k + l] * dc[i * n + j];
                sum += dc[i * n + j] * b[l * n + j];
            }
            da[i * k + l] += sum;
        }
}

/* The token before; the first row of a sequence has none but its own. */
static int target(int place)
{
    return pass.token[place % ROWS > 0 ? place - 1 : place];
}

/* Turns logits into chances; returns -log of the target's. */
static double choose(float *logit, int wanted)
{
    double sum = 0.0;
    float most = logit[0];

    for (int t = 0; t < TOKENS; t++) {
        most = fmaxf(most, logit[t]);
        pass.largest_logit = fmaxf(pass.largest_logit, fabsf(logit[t]));
    }
    const double loss = (double)most - (double)logit[wanted];
    for (int t = 0; t < TOKENS; t++)
        sum += exp((double)logit[t] - (double)most);
    for (int t = 0; t < TOKENS; t++)
        logit[t] = (float)(exp((double)logit[t] - (double)most) / sum);
    return loss + log(sum);
}

static double forward(void)
{
    double loss = 0.0;

    for (int p = 0; p < PLACES; p++)
        for (int i = 0; i < WIDTH; i++)
            pass.x[p * WIDTH + i] = weight[TOKEN_TABLE + pass.token[p] * WIDTH + i] +
                                    weight[PLACE_TABLE + p % ROWS * WIDTH + i];
    memset(pass.qkv, 0, sizeof pass.qkv);
    memset(pass.chance, 0, sizeof pass.chance);
    memcpy(pass.y, pass.x, sizeof pass.y);
    pass.largest_logit = 0.0f;
    multiply(PLACES, WIDTH, 3 * WIDTH, pass.x, weight + WQKV, pass.qkv);
    attend();
    multiply(PLACES, WIDTH, WIDTH, pass.o, weight + WOUT, pass.y);
    multiply(PLACES, WIDTH, TOKENS, pass.y, weight + WLOGITS, pass.chance);
    for (int p = 0; p < PLACES; p++)
        loss += choose(pass.chance + p * TOKENS, target(p));
    return loss / PLACES;
}

/* The gradient of the loss that forward() has returned. */
static void backward(void)
{
    static float dlogit[PLACES * TOKENS], dx[PLACES * WIDTH], d_o[PLACES * WIDTH];
    static float dqkv[PLACES * 3 * WIDTH];

    memset(gradient, 0, sizeof gradient);
    memset(dx, 0, sizeof dx);
    memset(d_o, 0, sizeof d_o);
    for (int p = 0; p < PLACES; p++)
        for (int t = 0; t < TOKENS; t++)
            dlogit[p * TOKENS + t] =
                (pass.chance[p * TOKENS + t] - (float)(t == target(p))) / PLACES;
    /* y is x and more, so that dy is the beginning of dx. */
    multiply_backward(PLACES, WIDTH, TOKENS, pass.y, weight + WLOGITS, dlogit, dx,
                      gradient + WLOGITS);
    multiply_backward(PLACES, WIDTH, WIDTH, pass.o, weight + WOUT, dx, d_o, gradient + WOUT);
    attend_backward(d_o, dqkv);
    multiply_backward(PLACES, WIDTH, 3 * WIDTH, pass.x, weight + WQKV, dqkv, dx, gradient + WQKV);
    for (int p = 0; p < PLACES; p++)
        for (int i = 0; i < WIDTH; i++) {
            gradient[TOKEN_TABLE + pass.token[p] * WIDTH + i] += dx[p * WIDTH + i];
            gradient[PLACE_TABLE + p % ROWS * WIDTH + i] += dx[p * WIDTH + i];
        }
}

/* ---- Training -------------------------------------------------------------------------------- */

static uint32_t random_bits(void)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static void start_weights(void)
{
    for (int i = 0; i < PARAMETERS; i++)
        weight[i] = 0.5f * ((float)random_bits() / 0x1p31f - 0.5f);
}

static void read_tokens(void)
{
    for (int p = 0; p < PLACES; p++)
        pass.token[p] = (int)(random_bits() % TOKENS);
}

/* One step of Adam (Kingma and Ba, 2015). */
static void improve(int step)
{
    static float mean[PARAMETERS], square[PARAMETERS];
    const float rate = 0.02f, keep = 0.9f, keep_square = 0.99f;
    const float young = 1.0f - powf(keep, (float)step + 1.0f);
    const float young_square = 1.0f - powf(keep_square, (float)step + 1.0f);

    for (int i = 0; i < PARAMETERS; i++) {
        const float g = gradient[i];
        mean[i] = keep * mean[i] + (1.0f - keep) * g;
        square[i] = keep_square * square[i] + (1.0f - keep_square) * g * g;
        weight[i] -= rate * (mean[i] / young) / (sqrtf(square[i] / young_square) + 1e-8f);
    }
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* (loss at weight + step sign - loss at weight - step sign) / 2 step, for one matrix. */
static double difference(int first, int end, const float *sign, float step)
{
    static float kept[PARAMETERS];
    double loss[2];

    memcpy(kept, weight, sizeof kept);
    for (int side = 0; side < 2; side++) {
        for (int i = first; i < end; i++)
            weight[i] = kept[i] + (side ? -step : step) * sign[i];
        loss[side] = forward();
    }
    memcpy(weight, kept, sizeof kept);
    return (loss[0] - loss[1]) / (2.0 * (double)step);
}

/* One direction of random signs: its slope by gradients and by differences. */
struct slope {
    double gradients, differences;
    double allowed; /* between the two */
};

/* What the two may differ by. A difference over a step h is off by c h^2, so those over h and 2 h
 * are apart by 3 c h^2, which is allowed in full since the next power is not known. A loss in fp32
 * is known to about sqrt(n) 2^-24 of the largest logit, for logits n additions deep; in a
 * difference that is divided by h. A sum of gradients has the same relative error in each of them.
 */
static struct slope find_slope(int first, int end)
{
    static float sign[PARAMETERS];
    const double rounding = sqrt(WIDTH + DIM + ROWS + WIDTH + WIDTH) * 0x1p-24;
    const float step = 0x1p-8f;
    struct slope s = {0};
    double size = 0.0, wide;

    for (int i = first; i < end; i++) {
        sign[i] = random_bits() & 1 ? 1.0f : -1.0f;
        s.gradients += (double)(gradient[i] * sign[i]);
        size += fabs((double)gradient[i]);
    }
    wide = difference(first, end, sign, 2.0f * step);
    s.differences = difference(first, end, sign, step);
    s.allowed =
        fabs(wide - s.differences) + rounding * ((double)pass.largest_logit / (double)step + size);
    return s;
}

/* The slope in a direction of random signs is as large as the norm of the gradient, give or take.
 * Where more than a fiftieth of that is allowed, nothing has been checked. */
static int check_matrix(int matrix)
{
    const int first = matrices[matrix].first, end = matrices[matrix].end;
    double squares = 0.0;
    int is_good = 1;

    for (int i = first; i < end; i++)
        squares += (double)gradient[i] * (double)gradient[i];
    for (int i = 0; i < DIRECTIONS; i++) {
        const struct slope s = find_slope(first, end);
        const double apart = fabs(s.gradients - s.differences);
        const int is_equal = apart <= s.allowed, is_sharp = s.allowed < 0.02 * sqrt(squares);

        printf("  %-11s slope %9.6f, by differences %9.6f: apart %.1e, allowed %.1e%s%s\n",
               matrices[matrix].name, s.gradients, s.differences, apart, s.allowed,
               is_equal ? "" : ", WRONG", is_sharp ? "" : ", TOO LOOSE");
        is_good &= is_equal && is_sharp;
    }
    return is_good;
}

static int check_gradient(void)
{
    int is_good = 1;

    (void)forward();
    backward();
    for (int m = 0; m < (int)(sizeof matrices / sizeof matrices[0]); m++)
        is_good &= check_matrix(m);
    return is_good;
}

int main(void)
{
    double first = 0.0, last = 0.0;
    int is_good = 1;

    open_tessera();
    start_weights();
    for (int step = 0; step <= STEPS; step++) {
        read_tokens();
        last = forward();
        if (step == 0)
            first = last;
        if (step % 10 == 0)
            printf("step %2d: loss %.4f\n", step, last);
        /* In the beginning, and while it learns most; at the end the gradient is nearly gone. */
        if (step == 0 || step == STEPS / 2)
            is_good &= check_gradient();
        backward();
        improve(step);
    }
    close_tessera();
    printf("gradients %s, loss %s\n", is_good ? "are right" : "are WRONG",
           last < 0.25 * first ? "has fallen" : "has NOT fallen enough");
    return is_good && last < 0.25 * first ? 0 : 1;
}
