// Rows of a product as chains of PTX multiply-adds, for NVIDIA's compilers: the carry flag lives only within one asm statement, so
// a chain is one statement. Included before field.cl, once for each field; FE_N is 8 or 12.
//   PTX_ROW(e, o, x, y)   e += y x[even], FE_N + 1 limbs; o += y x[odd], FE_N limbs
//   PTX_ROW_P(e, o, y)    the same with the modulus for x
//   PTX_SHIFT(o, e)       (o + e[1], e / 2^64): the accumulators after a division by 2^32, places changed
//   PTX_MERGE(r, e, o)    r = e + 2^32 o, FE_N limbs
#undef PTX_ROW_X
#undef PTX_SHIFT
#undef PTX_MERGE
#undef PTX_ROW
#undef PTX_ROW_P

#if FE_N == 8
#define PTX_ROW_X(e, o, y, x0, x1, x2, x3, x4, x5, x6, x7) \
  asm( \
    "mad.lo.cc.u32 %0, %9, %13, %0;\n\t" \
    "madc.hi.cc.u32 %1, %9, %13, %1;\n\t" \
    "madc.lo.cc.u32 %2, %10, %13, %2;\n\t" \
    "madc.hi.cc.u32 %3, %10, %13, %3;\n\t" \
    "madc.lo.cc.u32 %4, %11, %13, %4;\n\t" \
    "madc.hi.cc.u32 %5, %11, %13, %5;\n\t" \
    "madc.lo.cc.u32 %6, %12, %13, %6;\n\t" \
    "madc.hi.cc.u32 %7, %12, %13, %7;\n\t" \
    "addc.u32 %8, %8, 0;" \
    : "+r"((e)[0]), "+r"((e)[1]), "+r"((e)[2]), "+r"((e)[3]), "+r"((e)[4]), "+r"((e)[5]), "+r"((e)[6]), "+r"((e)[7]), "+r"((e)[8]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(y)); \
  asm( \
    "mad.lo.cc.u32 %0, %8, %12, %0;\n\t" \
    "madc.hi.cc.u32 %1, %8, %12, %1;\n\t" \
    "madc.lo.cc.u32 %2, %9, %12, %2;\n\t" \
    "madc.hi.cc.u32 %3, %9, %12, %3;\n\t" \
    "madc.lo.cc.u32 %4, %10, %12, %4;\n\t" \
    "madc.hi.cc.u32 %5, %10, %12, %5;\n\t" \
    "madc.lo.cc.u32 %6, %11, %12, %6;\n\t" \
    "madc.hi.u32 %7, %11, %12, %7;" \
    : "+r"((o)[0]), "+r"((o)[1]), "+r"((o)[2]), "+r"((o)[3]), "+r"((o)[4]), "+r"((o)[5]), "+r"((o)[6]), "+r"((o)[7]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(y))
#define PTX_ROW(e, o, x, y) PTX_ROW_X(e, o, y, (x)[0], (x)[1], (x)[2], (x)[3], (x)[4], (x)[5], (x)[6], (x)[7])
#define PTX_ROW_P(e, o, y) PTX_ROW_X(e, o, y, FE_P[0], FE_P[1], FE_P[2], FE_P[3], FE_P[4], FE_P[5], FE_P[6], FE_P[7])
#define PTX_SHIFT(o, e) \
  asm( \
    "add.cc.u32 %0, %0, %9;\n\t" \
    "addc.cc.u32 %1, %1, 0;\n\t" \
    "addc.cc.u32 %2, %2, 0;\n\t" \
    "addc.cc.u32 %3, %3, 0;\n\t" \
    "addc.cc.u32 %4, %4, 0;\n\t" \
    "addc.cc.u32 %5, %5, 0;\n\t" \
    "addc.cc.u32 %6, %6, 0;\n\t" \
    "addc.cc.u32 %7, %7, 0;\n\t" \
    "addc.u32 %8, %8, 0;" \
    : "+r"((o)[0]), "+r"((o)[1]), "+r"((o)[2]), "+r"((o)[3]), "+r"((o)[4]), "+r"((o)[5]), "+r"((o)[6]), "+r"((o)[7]), "+r"((o)[8]) \
    : "r"((e)[1])); \
  (e)[0] = (e)[2]; \
  (e)[1] = (e)[3]; \
  (e)[2] = (e)[4]; \
  (e)[3] = (e)[5]; \
  (e)[4] = (e)[6]; \
  (e)[5] = (e)[7]; \
  (e)[6] = (e)[8]; \
  (e)[7] = (e)[8] = 0
#define PTX_MERGE(r, e, o) \
  for (uint i = 0; i < 8; i++) (r)[i] = (e)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %7;\n\t" \
    "addc.cc.u32 %1, %1, %8;\n\t" \
    "addc.cc.u32 %2, %2, %9;\n\t" \
    "addc.cc.u32 %3, %3, %10;\n\t" \
    "addc.cc.u32 %4, %4, %11;\n\t" \
    "addc.cc.u32 %5, %5, %12;\n\t" \
    "addc.u32 %6, %6, %13;" \
    : "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]) \
    : "r"((o)[0]), "r"((o)[1]), "r"((o)[2]), "r"((o)[3]), "r"((o)[4]), "r"((o)[5]), "r"((o)[6]))
#else
#define PTX_ROW_X(e, o, y, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11) \
  asm( \
    "mad.lo.cc.u32 %0, %13, %19, %0;\n\t" \
    "madc.hi.cc.u32 %1, %13, %19, %1;\n\t" \
    "madc.lo.cc.u32 %2, %14, %19, %2;\n\t" \
    "madc.hi.cc.u32 %3, %14, %19, %3;\n\t" \
    "madc.lo.cc.u32 %4, %15, %19, %4;\n\t" \
    "madc.hi.cc.u32 %5, %15, %19, %5;\n\t" \
    "madc.lo.cc.u32 %6, %16, %19, %6;\n\t" \
    "madc.hi.cc.u32 %7, %16, %19, %7;\n\t" \
    "madc.lo.cc.u32 %8, %17, %19, %8;\n\t" \
    "madc.hi.cc.u32 %9, %17, %19, %9;\n\t" \
    "madc.lo.cc.u32 %10, %18, %19, %10;\n\t" \
    "madc.hi.cc.u32 %11, %18, %19, %11;\n\t" \
    "addc.u32 %12, %12, 0;" \
    : "+r"((e)[0]), "+r"((e)[1]), "+r"((e)[2]), "+r"((e)[3]), "+r"((e)[4]), "+r"((e)[5]), "+r"((e)[6]), "+r"((e)[7]), "+r"((e)[8]), "+r"((e)[9]), "+r"((e)[10]), "+r"((e)[11]), "+r"((e)[12]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(x8), "r"(x10), "r"(y)); \
  asm( \
    "mad.lo.cc.u32 %0, %12, %18, %0;\n\t" \
    "madc.hi.cc.u32 %1, %12, %18, %1;\n\t" \
    "madc.lo.cc.u32 %2, %13, %18, %2;\n\t" \
    "madc.hi.cc.u32 %3, %13, %18, %3;\n\t" \
    "madc.lo.cc.u32 %4, %14, %18, %4;\n\t" \
    "madc.hi.cc.u32 %5, %14, %18, %5;\n\t" \
    "madc.lo.cc.u32 %6, %15, %18, %6;\n\t" \
    "madc.hi.cc.u32 %7, %15, %18, %7;\n\t" \
    "madc.lo.cc.u32 %8, %16, %18, %8;\n\t" \
    "madc.hi.cc.u32 %9, %16, %18, %9;\n\t" \
    "madc.lo.cc.u32 %10, %17, %18, %10;\n\t" \
    "madc.hi.u32 %11, %17, %18, %11;" \
    : "+r"((o)[0]), "+r"((o)[1]), "+r"((o)[2]), "+r"((o)[3]), "+r"((o)[4]), "+r"((o)[5]), "+r"((o)[6]), "+r"((o)[7]), "+r"((o)[8]), "+r"((o)[9]), "+r"((o)[10]), "+r"((o)[11]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(x9), "r"(x11), "r"(y))
#define PTX_ROW(e, o, x, y) PTX_ROW_X(e, o, y, (x)[0], (x)[1], (x)[2], (x)[3], (x)[4], (x)[5], (x)[6], (x)[7], (x)[8], (x)[9], (x)[10], (x)[11])
#define PTX_ROW_P(e, o, y) PTX_ROW_X(e, o, y, FE_P[0], FE_P[1], FE_P[2], FE_P[3], FE_P[4], FE_P[5], FE_P[6], FE_P[7], FE_P[8], FE_P[9], FE_P[10], FE_P[11])
#define PTX_SHIFT(o, e) \
  asm( \
    "add.cc.u32 %0, %0, %13;\n\t" \
    "addc.cc.u32 %1, %1, 0;\n\t" \
    "addc.cc.u32 %2, %2, 0;\n\t" \
    "addc.cc.u32 %3, %3, 0;\n\t" \
    "addc.cc.u32 %4, %4, 0;\n\t" \
    "addc.cc.u32 %5, %5, 0;\n\t" \
    "addc.cc.u32 %6, %6, 0;\n\t" \
    "addc.cc.u32 %7, %7, 0;\n\t" \
    "addc.cc.u32 %8, %8, 0;\n\t" \
    "addc.cc.u32 %9, %9, 0;\n\t" \
    "addc.cc.u32 %10, %10, 0;\n\t" \
    "addc.cc.u32 %11, %11, 0;\n\t" \
    "addc.u32 %12, %12, 0;" \
    : "+r"((o)[0]), "+r"((o)[1]), "+r"((o)[2]), "+r"((o)[3]), "+r"((o)[4]), "+r"((o)[5]), "+r"((o)[6]), "+r"((o)[7]), "+r"((o)[8]), "+r"((o)[9]), "+r"((o)[10]), "+r"((o)[11]), "+r"((o)[12]) \
    : "r"((e)[1])); \
  (e)[0] = (e)[2]; \
  (e)[1] = (e)[3]; \
  (e)[2] = (e)[4]; \
  (e)[3] = (e)[5]; \
  (e)[4] = (e)[6]; \
  (e)[5] = (e)[7]; \
  (e)[6] = (e)[8]; \
  (e)[7] = (e)[9]; \
  (e)[8] = (e)[10]; \
  (e)[9] = (e)[11]; \
  (e)[10] = (e)[12]; \
  (e)[11] = (e)[12] = 0
#define PTX_MERGE(r, e, o) \
  for (uint i = 0; i < 12; i++) (r)[i] = (e)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %11;\n\t" \
    "addc.cc.u32 %1, %1, %12;\n\t" \
    "addc.cc.u32 %2, %2, %13;\n\t" \
    "addc.cc.u32 %3, %3, %14;\n\t" \
    "addc.cc.u32 %4, %4, %15;\n\t" \
    "addc.cc.u32 %5, %5, %16;\n\t" \
    "addc.cc.u32 %6, %6, %17;\n\t" \
    "addc.cc.u32 %7, %7, %18;\n\t" \
    "addc.cc.u32 %8, %8, %19;\n\t" \
    "addc.cc.u32 %9, %9, %20;\n\t" \
    "addc.u32 %10, %10, %21;" \
    : "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]), "+r"((r)[8]), "+r"((r)[9]), "+r"((r)[10]), "+r"((r)[11]) \
    : "r"((o)[0]), "r"((o)[1]), "r"((o)[2]), "r"((o)[3]), "r"((o)[4]), "r"((o)[5]), "r"((o)[6]), "r"((o)[7]), "r"((o)[8]), "r"((o)[9]), "r"((o)[10]))
#endif
