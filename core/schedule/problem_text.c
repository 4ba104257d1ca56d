/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing the one line of text that names a problem. */
#include "core/schedule/problem_text.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Extents and page sizes, as the public header bounds them. */
#define LARGEST_EXTENT INT64_C(2147483647)
#define LARGEST_SPLITS INT64_C(65536)

/* A piece of the line. Lists of lengths may be long, so words are never copied. */
typedef struct slice {
    const char *data;
    size_t size;
} slice;

/* How a word is spelled, and so which part of the struct it fills. */
typedef enum form {
    FORM_NUMBER,  /* hq32: digits follow the name */
    FORM_SETTING, /* splits=4: a whole number follows an equals sign */
    FORM_BIT,     /* causal: sets a bit of a mask */
    FORM_OTHER    /* read by its own function, below */
} form;

typedef struct word word;

/* Everything one call of tess_line_read() knows. */
typedef struct reader {
    tess_line line;
    uint64_t given; /* one bit per entry of `words` */
    slice token;    /* the word being read, for messages */
    tess_text *why;
} reader;

typedef bool (*read_fn)(reader *reader, slice value);

struct word {
    const char *name;
    form form;
    size_t offset; /* of the member: int64_t, or uint32_t for FORM_BIT */
    int64_t least, most;
    uint32_t bit;
    read_fn read;        /* FORM_OTHER */
    const char *accepts; /* FORM_OTHER: what the value may be; NULL: it takes none */
};

/* ---- Lists of lengths ---------------------------------------------------------------------- */

int64_t tess_lengths_count(const tess_lengths *lengths)
{
    int64_t count = 0;

    for (int32_t run = 0; run < lengths->runs; run++)
        count += lengths->count[run];
    return count;
}

/* A length, and how many sequences from that one on share it. */
static int64_t run_at(const tess_lengths *lengths, int64_t index, int64_t *out_left)
{
    for (int32_t run = 0; run < lengths->runs; run++) {
        if (index < lengths->count[run]) {
            *out_left = lengths->count[run] - index;
            return lengths->value[run];
        }
        index -= lengths->count[run];
    }
    *out_left = 1;
    return 0;
}

int64_t tess_lengths_at(const tess_lengths *lengths, int64_t index)
{
    int64_t left;

    return run_at(lengths, index, &left);
}

int64_t tess_lengths_max(const tess_lengths *lengths)
{
    int64_t max = 0;

    for (int32_t run = 0; run < lengths->runs; run++)
        if (lengths->value[run] > max)
            max = lengths->value[run];
    return max;
}

int64_t tess_lengths_total(const tess_lengths *lengths)
{
    int64_t total = 0;

    for (int32_t run = 0; run < lengths->runs; run++)
        total += lengths->value[run] * lengths->count[run];
    return total;
}

bool tess_lengths_add(tess_lengths *lengths, int64_t value, int64_t count)
{
    const int32_t last = lengths->runs - 1;

    if (count < 1)
        return true;
    /* Equal neighbours share a run, so that a list has one spelling and one representation. */
    if (last >= 0 && lengths->value[last] == value) {
        lengths->count[last] += count;
        return true;
    }
    if (lengths->runs == TESS_LINE_RUNS)
        return false;
    lengths->value[lengths->runs] = value;
    lengths->count[lengths->runs] = count;
    lengths->runs++;
    return true;
}

/* ---- Numbers ------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool slice_is(slice s, const char *text)
{
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

/* Takes a run of digits off the front; false when there is none or it passes `most`. */
static bool take_natural(slice *s, uint64_t most, uint64_t *out_value)
{
    uint64_t value = 0;
    size_t used = 0;

    for (; used < s->size && is_digit(s->data[used]); used++) {
        const uint64_t digit = (uint64_t)(s->data[used] - '0');

        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (used == 0)
        return false;
    s->data += used;
    s->size -= used;
    *out_value = value;
    return true;
}

/* A whole number and nothing behind it. */
static bool read_integer(slice s, int64_t least, int64_t most, int64_t *out_value)
{
    const bool is_negative = s.size > 0 && s.data[0] == '-';
    uint64_t value;

    if (is_negative) {
        s.data++;
        s.size--;
    }
    if (!take_natural(&s, INT64_MAX, &value) || s.size != 0)
        return false;
    *out_value = is_negative ? -(int64_t)value : (int64_t)value;
    return *out_value >= least && *out_value <= most;
}

/* 10 to a power, exact up to 22 and within two roundings beyond. */
static double power_of_ten(int exponent)
{
    double power = 1;

    for (; exponent >= 22; exponent -= 22)
        power *= 1e22;
    for (; exponent > 0; exponent--)
        power *= 10;
    return power;
}

/* A decimal number without strtod(), which reads what the program's locale says. The double is
 * within a few of its own roundings, so every float that write_real() wrote comes back: it is at
 * least 2^20 times nearer to its decimal than the middle between two floats is. */
static bool read_real(slice s, float *out_value)
{
    double value = 0;
    int exponent = 0;
    bool is_negative = false, has_digits = false, has_point = false;
    float result;

    if (s.size > 0 && (s.data[0] == '-' || s.data[0] == '+')) {
        is_negative = s.data[0] == '-';
        s.data++;
        s.size--;
    }
    for (; s.size > 0 && (is_digit(s.data[0]) || (s.data[0] == '.' && !has_point)); s.size--) {
        if (s.data[0] == '.') {
            has_point = true;
        } else {
            value = value * 10 + (s.data[0] - '0');
            exponent -= has_point ? 1 : 0;
            has_digits = true;
        }
        s.data++;
    }
    if (!has_digits || exponent < -400)
        return false;
    if (s.size > 0 && (s.data[0] == 'e' || s.data[0] == 'E')) {
        int64_t given;
        const size_t sign = s.size > 1 && s.data[1] == '+' ? 2 : 1;

        if (!read_integer((slice){s.data + sign, s.size - sign}, -400, 400, &given))
            return false;
        exponent += (int)given;
        s.size = 0;
    }
    if (s.size != 0)
        return false;
    value = exponent < 0 ? value / power_of_ten(-exponent) : value * power_of_ten(exponent);
    if (!(value < 0x1.ffffffp127)) /* would round to infinity */
        return false;
    result = (float)value;
    *out_value = is_negative ? -result : result;
    return true;
}

/* The shortest text that reads back as the same float, with a point whatever the locale says. */
static void write_real(tess_text *out, const char *name, float value)
{
    char best[64] = "";

    for (int digits = 1; digits <= 9; digits++) {
        char text[64], plain[64];
        size_t used = 0;
        float back;

        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        for (const char *c = text; *c; c++) {
            const bool is_plain = is_digit(*c) || *c == 'e' || *c == '-' || *c == '+';

            if (is_plain)
                plain[used++] = *c;
            else if (used > 0 && plain[used - 1] != '.')
                plain[used++] = '.'; /* of any locale, several bytes long in some */
        }
        plain[used] = '\0';
        if (!read_real((slice){plain, used}, &back) || back != value)
            continue;
        if (!*best || used < strlen(best))
            memcpy(best, plain, used + 1);
    }
    tess_text_add(out, " %s=%s", name, best);
}

/* ---- Messages ------------------------------------------------------------------------------ */

/* Says what is wrong with the word being read; returns false for the caller to return. */
static bool refuse(reader *r, const char *what, const char *accepts)
{
    enum { SHOWN = 60 };
    const int shown = r->token.size > SHOWN ? SHOWN : (int)r->token.size;

    tess_text_add(r->why, "\"%.*s%s\": %s%s", shown, r->token.data,
                  r->token.size > SHOWN ? "..." : "", what, accepts);
    return false;
}

/* ---- Words with a reader of their own ------------------------------------------------------ */

static bool read_pass(reader *r, slice value)
{
    (void)value;
    r->line.backward = slice_is(r->token, "bwd");
    return true;
}

static bool read_dtype_word(slice s, tess_dtype *out_dtype)
{
    static const tess_dtype dtypes[] = {TESS_F32, TESS_F16, TESS_BF16, TESS_E4M3, TESS_E5M2};
    static const char *const names[] = {"f32", "f16", "bf16", "e4m3", "e5m2"};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (slice_is(s, names[i])) {
            *out_dtype = dtypes[i];
            return true;
        }
    }
    return false;
}

static bool read_dtype(reader *r, slice value)
{
    (void)value;
    return read_dtype_word(r->token, &r->line.dtype);
}

static bool read_o_dtype(reader *r, slice value)
{
    return read_dtype_word(value, &r->line.o_dtype) &&
           (r->line.o_dtype == TESS_F32 || r->line.o_dtype == TESS_F16 ||
            r->line.o_dtype == TESS_BF16);
}

static bool read_window(reader *r, slice value)
{
    const char *comma = memchr(value.data, ',', value.size);
    slice left, right;

    if (!comma)
        return false;
    left = (slice){value.data, (size_t)(comma - value.data)};
    right = (slice){comma + 1, value.size - left.size - 1};
    r->line.mask |= TESS_MASK_WINDOW;
    return read_integer(left, -INT64_MAX, INT64_MAX, &r->line.window_left) &&
           read_integer(right, -INT64_MAX, INT64_MAX, &r->line.window_right);
}

static bool read_scale(reader *r, slice value)
{
    r->line.scale_is_set = true;
    return read_real(value, &r->line.softmax_scale);
}

static bool read_softcap(reader *r, slice value)
{
    return read_real(value, &r->line.softcap) && r->line.softcap >= 0;
}

static bool read_bias(reader *r, slice value)
{
    r->line.bias |= TESS_BIAS_TENSOR;
    if (!value.data)
        return true;
    return read_dtype_word(value, &r->line.bias_dtype) &&
           (r->line.bias_dtype == TESS_F32 || r->line.bias_dtype == TESS_F16 ||
            r->line.bias_dtype == TESS_BF16);
}

static bool read_bias_broadcast(reader *r, slice value)
{
    static const char axes[] = "bhij";

    for (size_t i = 0; i < value.size; i++) {
        const char *axis = memchr(axes, value.data[i], 4);

        if (!axis || (r->line.bias_broadcast & 1u << (axis - axes)))
            return false;
        r->line.bias_broadcast |= 1u << (axis - axes);
    }
    return value.size > 0;
}

static bool read_lengths(slice s, tess_lengths *out)
{
    for (;;) {
        uint64_t value, count = 1;

        if (!take_natural(&s, (uint64_t)LARGEST_EXTENT, &value))
            return false;
        if (s.size > 0 && s.data[0] == 'x') {
            s.data++;
            s.size--;
            if (!take_natural(&s, (uint64_t)LARGEST_EXTENT, &count) || count == 0)
                return false;
        }
        if (!tess_lengths_add(out, (int64_t)value, (int64_t)count))
            return false;
        if (tess_lengths_count(out) > LARGEST_EXTENT)
            return false;
        if (s.size == 0)
            return true;
        if (s.data[0] != ',')
            return false;
        s.data++;
        s.size--;
    }
}

static bool read_lens_q(reader *r, slice value)
{
    return read_lengths(value, &r->line.lens_q);
}
static bool read_lens_k(reader *r, slice value)
{
    return read_lengths(value, &r->line.lens_k);
}
static bool read_used_q(reader *r, slice value)
{
    return read_lengths(value, &r->line.used_q);
}
static bool read_used_k(reader *r, slice value)
{
    return read_lengths(value, &r->line.used_k);
}

static bool read_index(reader *r, slice value)
{
    r->line.index_dtype = slice_is(value, "i64") ? TESS_I64 : TESS_I32;
    return slice_is(value, "i32") || slice_is(value, "i64");
}

/* In the order of TESS_LAYOUT_BSHD and its like. */
static const char *const layout_names[] = {"bshd", "bhsd", "strided", "sparse"};

static bool read_layout(reader *r, slice value)
{
    for (int32_t i = 0; i < (int32_t)(sizeof layout_names / sizeof *layout_names); i++) {
        if (slice_is(value, layout_names[i])) {
            r->line.layout = i;
            return true;
        }
    }
    return false;
}

static bool read_fill(reader *r, slice value)
{
    if (value.size == 0 || value.size >= sizeof r->line.fill)
        return false;
    for (size_t i = 0; i < value.size; i++) {
        const char c = value.data[i];

        if (!(c >= 'a' && c <= 'z') && !is_digit(c) && c != '-' && c != '_')
            return false;
    }
    memset(r->line.fill, 0, sizeof r->line.fill);
    memcpy(r->line.fill, value.data, value.size);
    return true;
}

static bool read_seed(reader *r, slice value)
{
    return take_natural(&value, UINT64_MAX, &r->line.seed) && value.size == 0;
}

/* ---- The words ----------------------------------------------------------------------------- */

#define NUMBER(name, member, least)                                                          \
    {                                                                                        \
        name, FORM_NUMBER, offsetof(tess_line, member), least, LARGEST_EXTENT, 0, NULL, NULL \
    }
#define SETTING(name, member, least, most)                                          \
    {                                                                               \
        name, FORM_SETTING, offsetof(tess_line, member), least, most, 0, NULL, NULL \
    }
#define BIT(name, member, bit)                                             \
    {                                                                      \
        name, FORM_BIT, offsetof(tess_line, member), 0, 0, bit, NULL, NULL \
    }
#define OTHER(name, read, accepts)                  \
    {                                               \
        name, FORM_OTHER, 0, 0, 0, 0, read, accepts \
    }

#define FLOATS "f32, f16 or bf16"
#define LENGTHS "up to 64 runs of lengths, 0 to 2147483647, like 3,4,0x5 where 0x5 is five times 0"

static const word words[] = {
    OTHER("fwd", read_pass, NULL),
    OTHER("bwd", read_pass, NULL),
    NUMBER("b", batch, 0),
    NUMBER("hq", heads_q, 0),
    NUMBER("hk", heads_kv, 0),
    NUMBER("q", seqlen_q, 0),
    NUMBER("k", seqlen_k, 0),
    NUMBER("d", head_dim, 1),
    NUMBER("dv", head_dim_v, 1),
    OTHER("f32", read_dtype, NULL),
    OTHER("f16", read_dtype, NULL),
    OTHER("bf16", read_dtype, NULL),
    OTHER("e4m3", read_dtype, NULL),
    OTHER("e5m2", read_dtype, NULL),
    OTHER("of", read_o_dtype, FLOATS),
    BIT("causal", mask, TESS_MASK_CAUSAL),
    BIT("topleft", mask, TESS_MASK_TOP_LEFT),
    OTHER("window", read_window, "two whole numbers like 128,0, where -1 is no bound"),
    OTHER("scale", read_scale, "a finite number"),
    OTHER("softcap", read_softcap, "a finite number that is not negative; 0 is off"),
    BIT("alibi", bias, TESS_BIAS_ALIBI),
    BIT("sink", bias, TESS_BIAS_SINK),
    OTHER("bias", read_bias, "nothing, or " FLOATS),
    OTHER("biasbcast", read_bias_broadcast, "some of the letters b, h, i, j, each once"),
    SETTING("splits", splits, 0, LARGEST_SPLITS),
    OTHER("lensq", read_lens_q, LENGTHS),
    OTHER("lensk", read_lens_k, LENGTHS),
    OTHER("usedq", read_used_q, LENGTHS),
    OTHER("usedk", read_used_k, LENGTHS),
    SETTING("page", page_size, 1, LARGEST_EXTENT),
    OTHER("index", read_index, "i32 or i64"),
    BIT("deterministic", flags, TESS_DETERMINISTIC),
    BIT("invariant", flags, TESS_BATCH_INVARIANT),
    BIT("tf32", flags, TESS_ALLOW_TF32),
    BIT("spread", flags, TESS_ALLOW_NONFINITE_SPREAD),
    SETTING("gap", gap, 0, LARGEST_EXTENT),
    OTHER("layout", read_layout, "bshd, bhsd, strided or sparse"),
    OTHER("fill", read_fill, "a name of at most 23 small letters, digits, - and _"),
    OTHER("seed", read_seed, "a whole number from 0 to 18446744073709551615"),
};

enum { WORD_COUNT = sizeof words / sizeof *words };

/* Where in the table a word is, -1 when nowhere. */
static int word_index(slice name)
{
    for (int i = 0; i < WORD_COUNT; i++)
        if (slice_is(name, words[i].name))
            return i;
    return -1;
}

static bool was_given(const reader *r, const char *name)
{
    return r->given >> word_index((slice){name, strlen(name)}) & 1;
}

/* Splits a word into the name it starts with and what follows; value.data is NULL when nothing
 * does. "bf16" and "e4m3" end in digits and are names as they are. */
static int split_token(slice token, slice *out_value)
{
    const char *equals = memchr(token.data, '=', token.size);
    size_t letters = token.size;
    int index;

    *out_value = (slice){NULL, 0};
    if (equals) {
        letters = (size_t)(equals - token.data);
        *out_value = (slice){equals + 1, token.size - letters - 1};
        return word_index((slice){token.data, letters});
    }
    index = word_index(token);
    if (index >= 0)
        return index;
    while (letters > 0 && (is_digit(token.data[letters - 1]) || token.data[letters - 1] == '-'))
        letters--;
    index = word_index((slice){token.data, letters});
    if (index < 0 || words[index].form != FORM_NUMBER)
        return -1;
    *out_value = (slice){token.data + letters, token.size - letters};
    return index;
}

static bool refuse_unknown(reader *r)
{
    const char *names[WORD_COUNT];
    char name[32];
    size_t length = 0;
    const char *nearest;

    /* What a person mistypes is the name; the value behind it would hide how near that is. */
    while (length < r->token.size && length + 1 < sizeof name && r->token.data[length] != '=') {
        name[length] = r->token.data[length];
        length++;
    }
    name[length] = '\0';
    for (int i = 0; i < WORD_COUNT; i++)
        names[i] = words[i].name;
    nearest = tess_text_nearest(name, names, WORD_COUNT);
    refuse(r, "is no word of a problem", "");
    if (nearest)
        tess_text_add(r->why, "; did you mean \"%s\"?", nearest);
    tess_text_add(r->why, "%s words are", nearest ? " The" : "; the");
    for (int i = 0; i < WORD_COUNT; i++)
        tess_text_add(r->why, " %s%s", words[i].name,
                      words[i].form == FORM_NUMBER ? "N"
                      : words[i].form == FORM_SETTING ||
                              (words[i].form == FORM_OTHER && words[i].accepts)
                          ? "="
                          : "");
    return false;
}

static bool refuse_range(reader *r, const word *w)
{
    char accepts[64];

    snprintf(accepts, sizeof accepts, "a whole number from %" PRId64 " to %" PRId64, w->least,
             w->most);
    refuse(r, w->name, " takes ");
    tess_text_add(r->why, "%s, like %s%s%d", accepts, w->name, w->form == FORM_SETTING ? "=" : "",
                  16);
    return false;
}

static bool apply(reader *r, const word *w, slice value)
{
    char *member = (char *)&r->line + w->offset;
    int64_t number;
    uint32_t bits;

    switch (w->form) {
    case FORM_NUMBER:
    case FORM_SETTING:
        if (!read_integer(value, w->least, w->most, &number))
            return refuse_range(r, w);
        memcpy(member, &number, sizeof number);
        return true;
    case FORM_BIT:
        if (value.data)
            return refuse(r, w->name, " takes no value");
        memcpy(&bits, member, sizeof bits);
        bits |= w->bit;
        memcpy(member, &bits, sizeof bits);
        return true;
    case FORM_OTHER:
        if (!w->accepts && value.data)
            return refuse(r, w->name, " takes no value");
        /* `bias` alone stands without a value; everything else that takes one needs it. */
        if ((w->accepts && !value.data && w->read != read_bias) || !w->read(r, value)) {
            refuse(r, w->name, " takes ");
            tess_text_add(r->why, "%s", w->accepts);
            return false;
        }
        return true;
    }
    return false;
}

static bool read_token(reader *r)
{
    slice value;
    const int index = split_token(r->token, &value);
    const bool is_pass = index >= 0 && words[index].read == read_pass;

    if (index < 0 || (words[index].form == FORM_SETTING && !value.data))
        return index < 0 ? refuse_unknown(r) : refuse_range(r, &words[index]);
    if (is_pass != (r->given == 0))
        return refuse(r, is_pass ? "only the first word names the pass" : "the first word is ",
                      is_pass ? "" : "fwd or bwd");
    if (r->given >> index & 1)
        return refuse(r, words[index].name, " is given twice");
    /* Only one element type may be named. */
    if (words[index].read == read_dtype)
        for (int i = 0; i < WORD_COUNT; i++)
            if (words[i].read == read_dtype && r->given >> i & 1)
                return refuse(r, "the element type is given twice, before as ", words[i].name);
    r->given |= UINT64_C(1) << index;
    return apply(r, &words[index], value);
}

/* ---- What the words say together ----------------------------------------------------------- */

/* The list of lengths gives the batch and the upper bound, or agrees with those given. */
static bool settle_lengths(reader *r, const char *word_name, const tess_lengths *lens,
                           const char *bound_name, int64_t *bound)
{
    const int64_t count = tess_lengths_count(lens), max = tess_lengths_max(lens);

    if (lens->runs == 0)
        return true;
    if (!was_given(r, "b") && !(lens == &r->line.lens_k && r->line.lens_q.runs))
        r->line.batch = count;
    if (r->line.batch != count) {
        tess_text_add(r->why, "%s lists %" PRId64 " sequences but there are %" PRId64, word_name,
                      count, r->line.batch);
        return false;
    }
    if (!was_given(r, bound_name))
        *bound = max;
    if (*bound < max) {
        tess_text_add(r->why,
                      "%s has a length of %" PRId64 " but %s%" PRId64 " says that none is longer",
                      word_name, max, bound_name, *bound);
        return false;
    }
    return true;
}

/* Used lengths: one per sequence, none longer than its sequence. */
static bool settle_used(reader *r, const char *word_name, const tess_lengths *used,
                        const tess_lengths *lens, int64_t bound)
{
    const int64_t count = tess_lengths_count(used);

    if (used->runs == 0)
        return true;
    if (count != r->line.batch) {
        tess_text_add(r->why, "%s lists %" PRId64 " sequences but there are %" PRId64, word_name,
                      count, r->line.batch);
        return false;
    }
    for (int64_t i = 0, left = 0; i < count; i += left) {
        int64_t left_used, left_lens = INT64_MAX;
        const int64_t value = run_at(used, i, &left_used);
        const int64_t length = lens->runs ? run_at(lens, i, &left_lens) : bound;

        if (value > length) {
            tess_text_add(r->why,
                          "%s says that sequence %" PRId64 " uses %" PRId64
                          " but its length is %" PRId64,
                          word_name, i, value, length);
            return false;
        }
        left = left_used < left_lens ? left_used : left_lens;
    }
    return true;
}

static bool settle(reader *r)
{
    tess_line *line = &r->line;

    if (!was_given(r, "hk"))
        line->heads_kv = line->heads_q;
    if (!was_given(r, "dv"))
        line->head_dim_v = line->head_dim;
    if (!settle_lengths(r, "lensq", &line->lens_q, "q", &line->seqlen_q))
        return false;
    if (!was_given(r, "k"))
        line->seqlen_k = line->seqlen_q;
    if (!settle_lengths(r, "lensk", &line->lens_k, "k", &line->seqlen_k) ||
        !settle_used(r, "usedq", &line->used_q, &line->lens_q, line->seqlen_q) ||
        !settle_used(r, "usedk", &line->used_k, &line->lens_k, line->seqlen_k))
        return false;
    if (line->page_size && line->lens_k.runs) {
        tess_text_add(r->why, "page= and lensk= exclude each other: keys in pages are not packed; "
                              "give their lengths as usedk=");
        return false;
    }
    if (line->bias_broadcast && !(line->bias & TESS_BIAS_TENSOR)) {
        tess_text_add(r->why, "biasbcast= needs bias");
        return false;
    }
    if (line->gap && !line->lens_q.runs && !line->lens_k.runs) {
        tess_text_add(r->why, "gap= needs packed sequences: lensq= or lensk=");
        return false;
    }
    return true;
}

void tess_line_default(tess_line *line)
{
    memset(line, 0, sizeof *line);
    line->batch = line->heads_q = line->heads_kv = line->seqlen_q = line->seqlen_k = 1;
    line->head_dim = line->head_dim_v = 64;
    line->dtype = TESS_F32;
    line->bias_dtype = TESS_F32;
    line->index_dtype = TESS_I32;
    memcpy(line->fill, "normal", sizeof "normal");
    line->seed = 1;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

tess_status tess_line_read(const char *text, tess_line *out_line, tess_text *why)
{
    tess_text nowhere = {NULL, 0, 0};
    reader r = {.given = 0, .why = why ? why : &nowhere};

    tess_line_default(&r.line);
    for (;;) {
        while (is_blank(*text))
            text++;
        if (!*text)
            break;
        r.token = (slice){text, 0};
        while (*text && !is_blank(*text)) {
            text++;
            r.token.size++;
        }
        if (!read_token(&r))
            return TESS_INVALID;
    }
    if (r.given == 0) {
        tess_text_add(r.why, "the line is empty; the first word is fwd or bwd");
        return TESS_INVALID;
    }
    if (!settle(&r))
        return TESS_INVALID;
    *out_line = r.line;
    return TESS_OK;
}

/* ---- Writing ------------------------------------------------------------------------------- */

static void write_lengths(tess_text *out, const char *name, const tess_lengths *lengths)
{
    for (int32_t run = 0; run < lengths->runs; run++) {
        if (run == 0)
            tess_text_add(out, " %s=", name);
        tess_text_add(out, "%s%" PRId64, run ? "," : "", lengths->value[run]);
        if (lengths->count[run] > 1)
            tess_text_add(out, "x%" PRId64, lengths->count[run]);
    }
}

/* Batch, heads and lengths, without those that the lists of lengths give anyway. */
static void write_shape(const tess_line *line, tess_text *out)
{
    const bool has_lens_q = line->lens_q.runs > 0, has_lens_k = line->lens_k.runs > 0;

    if (!has_lens_q && !has_lens_k)
        tess_text_add(out, " b%" PRId64, line->batch);
    tess_text_add(out, " hq%" PRId64, line->heads_q);
    if (line->heads_kv != line->heads_q)
        tess_text_add(out, " hk%" PRId64, line->heads_kv);
    if (!has_lens_q || line->seqlen_q != tess_lengths_max(&line->lens_q))
        tess_text_add(out, " q%" PRId64, line->seqlen_q);
    if (!has_lens_k || line->seqlen_k != tess_lengths_max(&line->lens_k))
        tess_text_add(out, " k%" PRId64, line->seqlen_k);
    tess_text_add(out, " d%" PRId64, line->head_dim);
    if (line->head_dim_v != line->head_dim)
        tess_text_add(out, " dv%" PRId64, line->head_dim_v);
    tess_text_add(out, " %s", tess_dtype_name(line->dtype));
    if (line->o_dtype != TESS_DTYPE_NONE)
        tess_text_add(out, " of=%s", tess_dtype_name(line->o_dtype));
}

static void write_score(const tess_line *line, tess_text *out)
{
    if (line->mask & TESS_MASK_CAUSAL)
        tess_text_add(out, " causal");
    if (line->mask & TESS_MASK_TOP_LEFT)
        tess_text_add(out, " topleft");
    if (line->mask & TESS_MASK_WINDOW)
        tess_text_add(out, " window=%" PRId64 ",%" PRId64, line->window_left, line->window_right);
    if (line->scale_is_set)
        write_real(out, "scale", line->softmax_scale);
    if (line->softcap != 0)
        write_real(out, "softcap", line->softcap);
    if (line->bias & TESS_BIAS_ALIBI)
        tess_text_add(out, " alibi");
    if (line->bias & TESS_BIAS_SINK)
        tess_text_add(out, " sink");
    if (line->bias & TESS_BIAS_TENSOR) {
        tess_text_add(out, " bias");
        if (line->bias_dtype != TESS_F32)
            tess_text_add(out, "=%s", tess_dtype_name(line->bias_dtype));
        if (line->bias_broadcast)
            tess_text_add(out, " biasbcast=");
        for (int axis = 0; axis < 4; axis++)
            if (line->bias_broadcast & 1u << axis)
                tess_text_add(out, "%c", "bhij"[axis]);
    }
}

void tess_line_write(const tess_line *line, tess_text *out_text)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } flags[] = {{TESS_DETERMINISTIC, "deterministic"},
                 {TESS_BATCH_INVARIANT, "invariant"},
                 {TESS_ALLOW_TF32, "tf32"},
                 {TESS_ALLOW_NONFINITE_SPREAD, "spread"}};

    tess_text_add(out_text, line->backward ? "bwd" : "fwd");
    write_shape(line, out_text);
    write_score(line, out_text);
    if (line->splits)
        tess_text_add(out_text, " splits=%" PRId64, line->splits);
    write_lengths(out_text, "lensq", &line->lens_q);
    write_lengths(out_text, "lensk", &line->lens_k);
    write_lengths(out_text, "usedq", &line->used_q);
    write_lengths(out_text, "usedk", &line->used_k);
    if (line->page_size)
        tess_text_add(out_text, " page=%" PRId64, line->page_size);
    if (line->index_dtype == TESS_I64)
        tess_text_add(out_text, " index=i64");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (line->flags & flags[i].bit)
            tess_text_add(out_text, " %s", flags[i].name);
    if (line->gap)
        tess_text_add(out_text, " gap=%" PRId64, line->gap);
    if (line->layout != TESS_LAYOUT_BSHD)
        tess_text_add(out_text, " layout=%s", layout_names[line->layout]);
    if (strcmp(line->fill, "normal") != 0)
        tess_text_add(out_text, " fill=%s", line->fill);
    if (line->seed != 1)
        tess_text_add(out_text, " seed=%" PRIu64, line->seed);
}
