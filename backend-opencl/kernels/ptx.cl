// Carry chains in PTX, for NVIDIA's compilers: the carry flag lives only within one asm statement, so a chain is one statement. Included
// before field.cl, once for each field; FE_N is 8 or 12.
//
// A product keeps the columns of even and of odd position in accumulators of their own, FE_N limbs each, so that the carries of a row run
// through one chain of multiply-adds each: `even` holds limbs 0, 1, ..., `odd` limbs 1, 2, .... Adding a row that clears limb 0 and dividing by
// 2^32 makes odd columns even: the accumulators change places. What leaves the top of `even` goes to the last limb of `odd`. That is large
// enough: the value is below 2^(32 FE_N + 32) throughout.
//   PTX_ROW(even, odd, x, y)      after a division by 2^32, places already changed, that is still to be done: odd[k] = odd[k + 2] and even[0] += odd[1];
//                                 then even += y x[even], odd += y x[odd]
//   PTX_ROW_P(even, odd, y)       even += y p[even], odd += y p[odd]
//   PTX_MERGE(r, even, odd)       r = odd + even / 2^32, the value after a last division
//   PTX_ADD(r, a, b)              r = a + b
//   PTX_SUB(r, borrow, a, b)      r = a - b, borrow 0 or 0xffffffff
#undef PTX_ROW_X
#undef PTX_ROW
#undef PTX_ROW_PX
#undef PTX_ROW_P
#undef PTX_MERGE
#undef PTX_ADD
#undef PTX_SUB
#if FE_N == 8
#define PTX_ROW_X(even, odd, y, x0, x1, x2, x3, x4, x5, x6, x7) \
  asm( \
    "add.cc.u32 %8, %8, %1;\n\t" \
    "madc.lo.cc.u32 %0, %9, %13, %2;\n\t" \
    "madc.hi.cc.u32 %1, %9, %13, %3;\n\t" \
    "madc.lo.cc.u32 %2, %10, %13, %4;\n\t" \
    "madc.hi.cc.u32 %3, %10, %13, %5;\n\t" \
    "madc.lo.cc.u32 %4, %11, %13, %6;\n\t" \
    "madc.hi.cc.u32 %5, %11, %13, %7;\n\t" \
    "madc.lo.cc.u32 %6, %12, %13, 0;\n\t" \
    "madc.hi.u32 %7, %12, %13, 0;" \
    : "+r"((odd)[0]), "+r"((odd)[1]), "+r"((odd)[2]), "+r"((odd)[3]), "+r"((odd)[4]), "+r"((odd)[5]), "+r"((odd)[6]), "+r"((odd)[7]), "+r"((even)[0]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(y)); \
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
    : "+r"((even)[0]), "+r"((even)[1]), "+r"((even)[2]), "+r"((even)[3]), "+r"((even)[4]), "+r"((even)[5]), "+r"((even)[6]), "+r"((even)[7]), "+r"((odd)[7]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(y))
#define PTX_ROW(even, odd, x, y) PTX_ROW_X(even, odd, y, (x)[0], (x)[1], (x)[2], (x)[3], (x)[4], (x)[5], (x)[6], (x)[7])
#define PTX_ROW_PX(even, odd, y, x0, x1, x2, x3, x4, x5, x6, x7) \
  asm( \
    "mad.lo.cc.u32 %0, %8, %12, %0;\n\t" \
    "madc.hi.cc.u32 %1, %8, %12, %1;\n\t" \
    "madc.lo.cc.u32 %2, %9, %12, %2;\n\t" \
    "madc.hi.cc.u32 %3, %9, %12, %3;\n\t" \
    "madc.lo.cc.u32 %4, %10, %12, %4;\n\t" \
    "madc.hi.cc.u32 %5, %10, %12, %5;\n\t" \
    "madc.lo.cc.u32 %6, %11, %12, %6;\n\t" \
    "madc.hi.u32 %7, %11, %12, %7;" \
    : "+r"((odd)[0]), "+r"((odd)[1]), "+r"((odd)[2]), "+r"((odd)[3]), "+r"((odd)[4]), "+r"((odd)[5]), "+r"((odd)[6]), "+r"((odd)[7]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(y)); \
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
    : "+r"((even)[0]), "+r"((even)[1]), "+r"((even)[2]), "+r"((even)[3]), "+r"((even)[4]), "+r"((even)[5]), "+r"((even)[6]), "+r"((even)[7]), "+r"((odd)[7]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(y))
#define PTX_ROW_P(even, odd, y) PTX_ROW_PX(even, odd, y, FE_P[0], FE_P[1], FE_P[2], FE_P[3], FE_P[4], FE_P[5], FE_P[6], FE_P[7])
#define PTX_MERGE(r, even, odd) \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (odd)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %8;\n\t" \
    "addc.cc.u32 %1, %1, %9;\n\t" \
    "addc.cc.u32 %2, %2, %10;\n\t" \
    "addc.cc.u32 %3, %3, %11;\n\t" \
    "addc.cc.u32 %4, %4, %12;\n\t" \
    "addc.cc.u32 %5, %5, %13;\n\t" \
    "addc.cc.u32 %6, %6, %14;\n\t" \
    "addc.u32 %7, %7, 0;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]) \
    : "r"((even)[1]), "r"((even)[2]), "r"((even)[3]), "r"((even)[4]), "r"((even)[5]), "r"((even)[6]), "r"((even)[7]))
#define PTX_ADD(r, a, b) \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (a)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %8;\n\t" \
    "addc.cc.u32 %1, %1, %9;\n\t" \
    "addc.cc.u32 %2, %2, %10;\n\t" \
    "addc.cc.u32 %3, %3, %11;\n\t" \
    "addc.cc.u32 %4, %4, %12;\n\t" \
    "addc.cc.u32 %5, %5, %13;\n\t" \
    "addc.cc.u32 %6, %6, %14;\n\t" \
    "addc.u32 %7, %7, %15;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]) \
    : "r"((b)[0]), "r"((b)[1]), "r"((b)[2]), "r"((b)[3]), "r"((b)[4]), "r"((b)[5]), "r"((b)[6]), "r"((b)[7]))
#define PTX_SUB(r, borrow, a, b) \
  borrow = 0; \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (a)[i]; \
  asm( \
    "sub.cc.u32 %0, %0, %9;\n\t" \
    "subc.cc.u32 %1, %1, %10;\n\t" \
    "subc.cc.u32 %2, %2, %11;\n\t" \
    "subc.cc.u32 %3, %3, %12;\n\t" \
    "subc.cc.u32 %4, %4, %13;\n\t" \
    "subc.cc.u32 %5, %5, %14;\n\t" \
    "subc.cc.u32 %6, %6, %15;\n\t" \
    "subc.cc.u32 %7, %7, %16;\n\t" \
    "subc.u32 %8, 0, 0;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]), "+r"(borrow) \
    : "r"((b)[0]), "r"((b)[1]), "r"((b)[2]), "r"((b)[3]), "r"((b)[4]), "r"((b)[5]), "r"((b)[6]), "r"((b)[7]))
#else
#define PTX_ROW_X(even, odd, y, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11) \
  asm( \
    "add.cc.u32 %12, %12, %1;\n\t" \
    "madc.lo.cc.u32 %0, %13, %19, %2;\n\t" \
    "madc.hi.cc.u32 %1, %13, %19, %3;\n\t" \
    "madc.lo.cc.u32 %2, %14, %19, %4;\n\t" \
    "madc.hi.cc.u32 %3, %14, %19, %5;\n\t" \
    "madc.lo.cc.u32 %4, %15, %19, %6;\n\t" \
    "madc.hi.cc.u32 %5, %15, %19, %7;\n\t" \
    "madc.lo.cc.u32 %6, %16, %19, %8;\n\t" \
    "madc.hi.cc.u32 %7, %16, %19, %9;\n\t" \
    "madc.lo.cc.u32 %8, %17, %19, %10;\n\t" \
    "madc.hi.cc.u32 %9, %17, %19, %11;\n\t" \
    "madc.lo.cc.u32 %10, %18, %19, 0;\n\t" \
    "madc.hi.u32 %11, %18, %19, 0;" \
    : "+r"((odd)[0]), "+r"((odd)[1]), "+r"((odd)[2]), "+r"((odd)[3]), "+r"((odd)[4]), "+r"((odd)[5]), "+r"((odd)[6]), "+r"((odd)[7]), "+r"((odd)[8]), "+r"((odd)[9]), "+r"((odd)[10]), "+r"((odd)[11]), "+r"((even)[0]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(x9), "r"(x11), "r"(y)); \
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
    : "+r"((even)[0]), "+r"((even)[1]), "+r"((even)[2]), "+r"((even)[3]), "+r"((even)[4]), "+r"((even)[5]), "+r"((even)[6]), "+r"((even)[7]), "+r"((even)[8]), "+r"((even)[9]), "+r"((even)[10]), "+r"((even)[11]), "+r"((odd)[11]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(x8), "r"(x10), "r"(y))
#define PTX_ROW(even, odd, x, y) PTX_ROW_X(even, odd, y, (x)[0], (x)[1], (x)[2], (x)[3], (x)[4], (x)[5], (x)[6], (x)[7], (x)[8], (x)[9], (x)[10], (x)[11])
#define PTX_ROW_PX(even, odd, y, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11) \
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
    : "+r"((odd)[0]), "+r"((odd)[1]), "+r"((odd)[2]), "+r"((odd)[3]), "+r"((odd)[4]), "+r"((odd)[5]), "+r"((odd)[6]), "+r"((odd)[7]), "+r"((odd)[8]), "+r"((odd)[9]), "+r"((odd)[10]), "+r"((odd)[11]) \
    : "r"(x1), "r"(x3), "r"(x5), "r"(x7), "r"(x9), "r"(x11), "r"(y)); \
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
    : "+r"((even)[0]), "+r"((even)[1]), "+r"((even)[2]), "+r"((even)[3]), "+r"((even)[4]), "+r"((even)[5]), "+r"((even)[6]), "+r"((even)[7]), "+r"((even)[8]), "+r"((even)[9]), "+r"((even)[10]), "+r"((even)[11]), "+r"((odd)[11]) \
    : "r"(x0), "r"(x2), "r"(x4), "r"(x6), "r"(x8), "r"(x10), "r"(y))
#define PTX_ROW_P(even, odd, y) PTX_ROW_PX(even, odd, y, FE_P[0], FE_P[1], FE_P[2], FE_P[3], FE_P[4], FE_P[5], FE_P[6], FE_P[7], FE_P[8], FE_P[9], FE_P[10], FE_P[11])
#define PTX_MERGE(r, even, odd) \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (odd)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %12;\n\t" \
    "addc.cc.u32 %1, %1, %13;\n\t" \
    "addc.cc.u32 %2, %2, %14;\n\t" \
    "addc.cc.u32 %3, %3, %15;\n\t" \
    "addc.cc.u32 %4, %4, %16;\n\t" \
    "addc.cc.u32 %5, %5, %17;\n\t" \
    "addc.cc.u32 %6, %6, %18;\n\t" \
    "addc.cc.u32 %7, %7, %19;\n\t" \
    "addc.cc.u32 %8, %8, %20;\n\t" \
    "addc.cc.u32 %9, %9, %21;\n\t" \
    "addc.cc.u32 %10, %10, %22;\n\t" \
    "addc.u32 %11, %11, 0;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]), "+r"((r)[8]), "+r"((r)[9]), "+r"((r)[10]), "+r"((r)[11]) \
    : "r"((even)[1]), "r"((even)[2]), "r"((even)[3]), "r"((even)[4]), "r"((even)[5]), "r"((even)[6]), "r"((even)[7]), "r"((even)[8]), "r"((even)[9]), "r"((even)[10]), "r"((even)[11]))
#define PTX_ADD(r, a, b) \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (a)[i]; \
  asm( \
    "add.cc.u32 %0, %0, %12;\n\t" \
    "addc.cc.u32 %1, %1, %13;\n\t" \
    "addc.cc.u32 %2, %2, %14;\n\t" \
    "addc.cc.u32 %3, %3, %15;\n\t" \
    "addc.cc.u32 %4, %4, %16;\n\t" \
    "addc.cc.u32 %5, %5, %17;\n\t" \
    "addc.cc.u32 %6, %6, %18;\n\t" \
    "addc.cc.u32 %7, %7, %19;\n\t" \
    "addc.cc.u32 %8, %8, %20;\n\t" \
    "addc.cc.u32 %9, %9, %21;\n\t" \
    "addc.cc.u32 %10, %10, %22;\n\t" \
    "addc.u32 %11, %11, %23;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]), "+r"((r)[8]), "+r"((r)[9]), "+r"((r)[10]), "+r"((r)[11]) \
    : "r"((b)[0]), "r"((b)[1]), "r"((b)[2]), "r"((b)[3]), "r"((b)[4]), "r"((b)[5]), "r"((b)[6]), "r"((b)[7]), "r"((b)[8]), "r"((b)[9]), "r"((b)[10]), "r"((b)[11]))
#define PTX_SUB(r, borrow, a, b) \
  borrow = 0; \
  for (uint i = 0; i < FE_N; i++) (r)[i] = (a)[i]; \
  asm( \
    "sub.cc.u32 %0, %0, %13;\n\t" \
    "subc.cc.u32 %1, %1, %14;\n\t" \
    "subc.cc.u32 %2, %2, %15;\n\t" \
    "subc.cc.u32 %3, %3, %16;\n\t" \
    "subc.cc.u32 %4, %4, %17;\n\t" \
    "subc.cc.u32 %5, %5, %18;\n\t" \
    "subc.cc.u32 %6, %6, %19;\n\t" \
    "subc.cc.u32 %7, %7, %20;\n\t" \
    "subc.cc.u32 %8, %8, %21;\n\t" \
    "subc.cc.u32 %9, %9, %22;\n\t" \
    "subc.cc.u32 %10, %10, %23;\n\t" \
    "subc.cc.u32 %11, %11, %24;\n\t" \
    "subc.u32 %12, 0, 0;" \
    : "+r"((r)[0]), "+r"((r)[1]), "+r"((r)[2]), "+r"((r)[3]), "+r"((r)[4]), "+r"((r)[5]), "+r"((r)[6]), "+r"((r)[7]), "+r"((r)[8]), "+r"((r)[9]), "+r"((r)[10]), "+r"((r)[11]), "+r"(borrow) \
    : "r"((b)[0]), "r"((b)[1]), "r"((b)[2]), "r"((b)[3]), "r"((b)[4]), "r"((b)[5]), "r"((b)[6]), "r"((b)[7]), "r"((b)[8]), "r"((b)[9]), "r"((b)[10]), "r"((b)[11]))
#endif
