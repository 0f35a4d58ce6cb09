/* The contract in plain C: a whole backend, on the calling thread, with the simplest algorithms that are right for every key.
   Build: cc -O3 -std=c11 -shared -fPIC -fvisibility=hidden -I core/include backend.c -o libsplitprover_backend_c.so */
#include <stdio.h>
#include <stdlib.h>

#include "splitprover.h"

#include "field.h"

#define F fp
#define GROUP g1
#include "curve.h"
#define F fp2
#define GROUP g2
#include "curve.h"

/* Handles. The host sees pointers to them and nothing else. */
struct SpInstance { const SpHost *host; };
struct SpLoadedKey { SpInstance *instance; SpKey key; };
struct SpPending { SpSums sums; };
struct SpError { SpStatus code; uint64_t requested; char message[120]; };

#define TEXT(literal) {(const uint8_t *)(literal), sizeof(literal) - 1}

static SpStatus fail(SpError **error, SpStatus code, uint64_t requested, const char *message) {
    SpError *stored = error ? calloc(1, sizeof *stored) : NULL;
    if (stored) {
        stored->code = code;
        stored->requested = requested;
        snprintf(stored->message, sizeof stored->message, "%s", message);
        *error = stored;
    }
    return code;
}

static void error_info(const SpError *error, SpErrorInfo *out) {
    SpErrorInfo info = {.struct_size = out->struct_size, .code = error->code, .memory_class = SP_MEMORY_BACKEND,
                        .requested = error->requested};
    info.message.data = (const uint8_t *)error->message;
    info.message.len = strlen(error->message);
    memcpy(out, &info, out->struct_size < sizeof info ? out->struct_size : sizeof info);
}

static void error_destroy(SpError *error) { free(error); }

static SpStatus devices(const SpHost *host, SpDeviceVisitor visit, void *ctx, SpError **error) {
    (void)host, (void)error;
    SpDevice device = {.struct_size = sizeof device, .name = TEXT("the calling thread"), .kind = TEXT("cpu")};
    visit(ctx, &device);
    return SP_OK;
}

static SpStatus open_device(const SpOpen *args, SpInstance **out, SpError **error) {
    if (args->device != 0) return fail(error, SP_ERR_UNSUPPORTED, 0, "there is one device, number 0");
    if (args->num_options != 0) return fail(error, SP_ERR_UNSUPPORTED, 0, "there are no options");
    SpInstance *instance = malloc(sizeof *instance);
    if (!instance) return fail(error, SP_ERR_HOST_MEMORY, sizeof *instance, "malloc");
    instance->host = args->host; /* valid until close returns */
    *out = instance;
    return SP_OK;
}

static SpStatus close_device(SpInstance *instance, SpError **error) {
    (void)error;
    free(instance);
    return SP_OK;
}

/* The views stay valid until unload_key, so a copy of the struct is all it takes. */
static SpStatus load_key(SpInstance *instance, const SpKey *key, SpLoadedKey **out, SpError **error) {
    if (key->struct_size < sizeof *key) return fail(error, SP_ERR_ARGUMENT, 0, "a short key");
    SpLoadedKey *loaded = malloc(sizeof *loaded);
    if (!loaded) return fail(error, SP_ERR_HOST_MEMORY, sizeof *loaded, "malloc");
    loaded->instance = instance;
    loaded->key = *key;
    *out = loaded;
    return SP_OK;
}

static SpStatus unload_key(SpLoadedKey *key, SpError **error) {
    (void)error;
    free(key);
    return SP_OK;
}

/* Memory on the host's account: asked for before it is allocated, given back after it is freed. */
static fr *vector(const SpHost *host, uint64_t len) {
    int64_t bytes = (int64_t)(len * sizeof(fr));
    if (host && host->account && host->account(host->ctx, SP_MEMORY_BACKEND, bytes) != SP_OK) return NULL;
    fr *memory = calloc(len, sizeof(fr));
    if (!memory && host && host->account) host->account(host->ctx, SP_MEMORY_BACKEND, -bytes);
    return memory;
}

static void drop_vector(const SpHost *host, fr *memory, uint64_t len) {
    if (!memory) return;
    free(memory);
    if (host && host->account) host->account(host->ctx, SP_MEMORY_BACKEND, -(int64_t)(len * sizeof(fr)));
}

static fr power(fr x, uint64_t exponent) {
    fr y = FR_ONE;
    for (; exponent; exponent >>= 1, x = fr_mul(x, x))
        if (exponent & 1) y = fr_mul(y, x);
    return y;
}

/* values[k] = the sum of values[i]*omega^(i*k). */
static void transform(fr *values, uint64_t n, fr omega) {
    for (uint64_t i = 1, j = 0; i < n; i++) {
        uint64_t bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) { fr t = values[i]; values[i] = values[j]; values[j] = t; }
    }
    for (uint64_t half = 1; half < n; half *= 2) {
        fr root = power(omega, n / (2 * half));
        for (uint64_t block = 0; block < n; block += 2 * half) {
            fr twiddle = FR_ONE;
            for (uint64_t i = block; i < block + half; i++, twiddle = fr_mul(twiddle, root)) {
                fr x = values[i], y = fr_mul(values[i + half], twiddle);
                values[i] = fr_add(x, y);
                values[i + half] = fr_sub(x, y);
            }
        }
    }
}

static void scale(fr *values, uint64_t n, fr factor, fr ratio) {
    for (uint64_t i = 0; i < n; i++, factor = fr_mul(factor, ratio)) values[i] = fr_mul(values[i], factor);
}

/* The scalars of the H query, left in a: formulas beside SP_H_MONOMIAL and SP_H_ODD_LAGRANGE. */
static void quotient(const SpKey *key, fr *a, fr *b, fr *c) {
    uint64_t n = (uint64_t)1 << key->shape.domain_log2;
    fr g, omega, shift = FR_ONE, count = FR_ONE;
    memcpy(&g, key->root, sizeof g);
    for (uint32_t i = 32; i > key->shape.domain_log2 + 1; i--) g = fr_mul(g, g);
    omega = fr_mul(g, g);
    for (uint32_t i = 0; i < key->shape.domain_log2; i++) count = fr_add(count, count);
    fr back = fr_invert(omega, FR_ONE), mean = fr_invert(count, FR_ONE);
    if (key->h_basis == SP_H_ODD_LAGRANGE) shift = g;
    else for (int i = 1; i < 7; i++) shift = fr_add(shift, FR_ONE); /* 7 is in no domain */
    fr *vectors[3] = {a, b, c};
    for (int v = 0; v < 3; v++) {
        transform(vectors[v], n, back);
        scale(vectors[v], n, mean, shift);
        transform(vectors[v], n, omega);
    }
    for (uint64_t i = 0; i < n; i++) a[i] = fr_sub(fr_mul(a[i], b[i]), c[i]);
    if (key->h_basis == SP_H_MONOMIAL) {
        fr z = fr_sub(power(shift, n), FR_ONE);
        transform(a, n, back);
        scale(a, n, fr_mul(mean, fr_invert(z, FR_ONE)), fr_invert(shift, FR_ONE));
    }
}

static void evaluate(const SpMatrix *matrix, const fr *witness, fr *out) {
    const fr *dictionary = (const fr *)matrix->dictionary;
    for (uint64_t row = 0; row < matrix->num_rows; row++)
        for (uint32_t k = matrix->row_offsets[row]; k < matrix->row_offsets[row + 1]; k++)
            out[row] = fr_add(out[row], fr_mul(dictionary[matrix->coefficients[k]], witness[matrix->columns[k]]));
}

/* Out of Montgomery form: a product with 1. */
static void plain(const fr *values, uint64_t n, fr *out) {
    const fr one = {{1, 0, 0, 0}};
    for (uint64_t i = 0; i < n; i++) out[i] = fr_mul(values[i], one);
}

/* Why the inputs can't belong to the key; NULL if they can. The host checks as well; nobody reads by a length that is wrong. */
static const char *misfit(const SpKey *key, const SpInputs *inputs) {
    const uint32_t present = inputs->present, c = present >> SP_VECTOR_C & 1;
    const uint64_t rows = inputs->vectors[SP_VECTOR_A].len;
    if (!(present >> SP_VECTOR_WITNESS & 1) || inputs->vectors[SP_VECTOR_WITNESS].len != key->shape.num_variables)
        return "a witness of another length than the key's";
    if (!(present >> SP_VECTOR_A & 1) && !(present >> SP_VECTOR_B & 1) && !c)
        return key->matrix_a ? NULL : "without matrices evaluations are needed";
    if (!(present >> SP_VECTOR_A & 1) || !(present >> SP_VECTOR_B & 1)) return "one evaluation vector without the other";
    if (rows > (uint64_t)1 << key->shape.domain_log2) return "more evaluations than rows";
    if (inputs->vectors[SP_VECTOR_B].len != rows || (c && inputs->vectors[SP_VECTOR_C].len != rows))
        return "evaluations of two lengths";
    return NULL;
}

static SpStatus start(SpInstance *instance, SpLoadedKey *loaded, const SpInputs *inputs, SpPending **out,
                      SpError **error) {
    const SpKey *key = &loaded->key;
    const SpHost *host = instance->host;
    const uint64_t n = (uint64_t)1 << key->shape.domain_log2, variables = key->shape.num_variables;
    const bool given = inputs->present >> SP_VECTOR_A & 1, given_c = inputs->present >> SP_VECTOR_C & 1;
    if (loaded->instance != instance) return fail(error, SP_ERR_FOREIGN_KEY, 0, "");
    if (inputs->struct_size < sizeof *inputs) return fail(error, SP_ERR_ARGUMENT, 0, "short inputs");
    const char *reason = misfit(key, inputs);
    if (reason) return fail(error, SP_ERR_INPUTS, 0, reason);

    /* First whatever may fail: until something is released, the caller gets its inputs back. */
    fr *a = vector(host, n), *b = vector(host, n), *c = vector(host, n), *w = vector(host, variables);
    SpPending *pending = calloc(1, sizeof *pending);
    if (!a || !b || !c || !w || !pending) {
        drop_vector(host, a, n), drop_vector(host, b, n), drop_vector(host, c, n), drop_vector(host, w, variables);
        free(pending);
        return fail(error, SP_ERR_HOST_MEMORY, n * sizeof(fr), "no memory for the evaluations");
    }

    const SpVector *v = inputs->vectors;
    const fr *witness = (const fr *)v[SP_VECTOR_WITNESS].data;
    if (given) {
        /* Each vector is released as soon as it has been read. */
        memcpy(a, v[SP_VECTOR_A].data, v[SP_VECTOR_A].len * sizeof(fr));
        inputs->release(inputs->ctx, SP_VECTOR_A);
        memcpy(b, v[SP_VECTOR_B].data, v[SP_VECTOR_B].len * sizeof(fr));
        inputs->release(inputs->ctx, SP_VECTOR_B);
    } else {
        evaluate(key->matrix_a, witness, a);
        evaluate(key->matrix_b, witness, b);
    }
    if (given_c) {
        memcpy(c, v[SP_VECTOR_C].data, v[SP_VECTOR_C].len * sizeof(fr));
        inputs->release(inputs->ctx, SP_VECTOR_C);
    } else {
        for (uint64_t i = 0; i < n; i++) c[i] = fr_mul(a[i], b[i]);
    }
    plain(witness, variables, w);
    inputs->release(inputs->ctx, SP_VECTOR_WITNESS);

    quotient(key, a, b, c);
    plain(a, n, a);
    const fp2 one = {FP_ONE, {{0}}};
    g1_write(pending->sums.a, g1_multiexp(&key->a, w, FP_ONE), FP_ONE);
    g1_write(pending->sums.b_g1, g1_multiexp(&key->b_g1, w, FP_ONE), FP_ONE);
    g2_write(pending->sums.b_g2, g2_multiexp(&key->b_g2, w, one), one);
    g1_point h = g1_multiexp(&key->h, a, FP_ONE);
    g1_point l = g1_multiexp(&key->l, w + key->shape.num_public + 1, FP_ONE);
    g1_write(pending->sums.hl, g1_add(h, l), FP_ONE);
    drop_vector(host, a, n), drop_vector(host, b, n), drop_vector(host, c, n), drop_vector(host, w, variables);
    *out = pending;
    return SP_OK;
}

static SpStatus finish(SpPending *pending, SpSums *out, SpError **error) {
    (void)error;
    pending->sums.struct_size = out->struct_size;
    memcpy(out, &pending->sums, out->struct_size < sizeof *out ? out->struct_size : sizeof *out);
    free(pending);
    return SP_OK;
}

static SpStatus drop_pending(SpPending *pending, SpError **error) {
    (void)error;
    free(pending);
    return SP_OK;
}

static const SpBackendTable TABLE = {
    .struct_size = sizeof(SpBackendTable),
    .abi_version = SP_ABI_VERSION,
    .name = TEXT("c"),
    .vendor = TEXT("splitprover"),
    .version = TEXT("0.1.0"),
    .curve = TEXT(SP_CURVE),
    .scalar_layout = TEXT(SP_SCALAR_LAYOUT),
    .point_layout = TEXT(SP_POINT_LAYOUT),
    .devices = devices,
    .open = open_device,
    .close = close_device,
    .load_key = load_key,
    .unload_key = unload_key,
    .start = start,
    .finish = finish,
    .drop_pending = drop_pending,
    .error_info = error_info,
    .error_destroy = error_destroy,
};

__attribute__((visibility("default"))) SpStatus sp_negotiate(uint32_t min, uint32_t max, const SpHost *host,
                                                             const SpBackendTable **out) {
    (void)host;
    *out = &TABLE;
    return min <= SP_ABI_VERSION && SP_ABI_VERSION <= max ? SP_OK : SP_ERR_VERSION;
}
