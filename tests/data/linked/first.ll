@primes = private unnamed_addr constant [8 x i32] [i32 2, i32 3, i32 5, i32 7, i32 11, i32 13, i32 17, i32 19]
declare i64 @second(i64)
declare i64 @outside(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal i64 @same(i64 %n) noinline { %r = mul i64 %n, 3
 ret i64 %r }
define i64 @first(i64 %n) {
 %size = mul i64 %n, 8
 %buffer = alloca i8, i64 %size, align 64
 call void @llvm.memset.p0.i64(ptr align 64 %buffer, i8 1, i64 %size, i1 false)
 %ones = load i64, ptr %buffer
 %i = and i64 %n, 7
 %place = getelementptr [8 x i32], ptr @primes, i64 0, i64 %i
 %prime = load i32, ptr %place
 %wide = zext i32 %prime to i64
 %s = call i64 @second(i64 %n)
 %o = call i64 @outside(i64 %s)
 %t = call i64 @same(i64 %o)
 %u = add i64 %t, %wide
 %v = xor i64 %u, %ones
 ret i64 %v }
