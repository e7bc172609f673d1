define internal i64 @same(i64 %n) noinline { %r = mul i64 %n, 5
 ret i64 %r }
define i64 @second(i64 %n) {
 switch i64 %n, label %other [ i64 1, label %a
 i64 2, label %b
 i64 3, label %c
 i64 4, label %d
 i64 5, label %e ]
a: %ra = call i64 @same(i64 7)
 ret i64 %ra
b: ret i64 -9
c: %rc = sdiv i64 1000000, %n
 ret i64 %rc
d: %f = uitofp i64 %n to double
 %g = fadd double %f, 0.3
 %h = bitcast double %g to i64
 ret i64 %h
e: %re = udiv i64 12345, %n
 ret i64 %re
other: ret i64 0 }
