% Matrices: product, factors, sort, transform. (A file for Octave.)
rand("twister", 7);
a = rand(1500);
b = a * a';
[l, u, p] = lu(a);
printf("%.6e %.6e\n", trace(b) / 1500, norm(p * a - l * u, 1) < 1e-6);
v = rand(1, 3000000);
[s, order] = sort(v);
printf("%.12f %d\n", s(1500000), order(12345));
f = abs(ifft(fft(v(1:2097152))));
printf("%.6f\n", sum(f) / 1e6);
c = cell(1, 100000);
for i = 1:100000
  c{i} = [i, mod(i * 7919, 65521)];
end
printf("%d\n", sum(cellfun(@(x) x(2), c)));
printf("%.6e\n", trace(b(1:2:end, 1:2:end)) / 750);
