\\ Vectors of integers and of polynomials on PARI's stack, which is one reservation.
default(parisizemax, "2G");
count = 1500000;
v = vector(count, i, i * 48271 * i % 1000003 * 10^20 + i);
w = vecsort(v);
s = 0; for (i = 1, count, s = (s * 31 + w[i]) % 1000003); print(s);
p = vector(20000, i, 'x^3 + i * 'x + i^2);
q = vector(20000, i, p[i] * p[(i * 7919) % 20000 + 1]);
s = 0; for (i = 1, 20000, s = (s + subst(q[i], 'x, i)) % 1000000007); print(s);
m = matrix(400, 400, i, j, (i * j * 7919) % 65521);
print(matdet(m * Mod(1, 1000003)));
s = 0; for (i = 1, count, s = (s * 33 + v[(i * 7919) % count + 1]) % 1000003); print(s);
