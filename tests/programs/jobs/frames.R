# A data frame that is sorted, grouped and fitted, and a list of many small vectors.
count <- 1500000
index <- seq_len(count) - 1
frame <- data.frame(id = index, owner = (index * 48271) %% 65521, price = (index * 69621) %% 9973,
                    weight = sin(index))
frame <- frame[order(frame$owner, frame$price, frame$id), ]
print(head(frame, 5), digits = 12)
groups <- tapply(frame$price, frame$owner, sum)
print(sum(groups * seq_along(groups) %% 7))
model <- lm(price ~ owner + weight, data = frame)
print(signif(coef(model), 6))
many <- lapply(seq_len(400000), function(i) c(i, i * 2, i * 3))
print(sum(vapply(many, function(v) v[2] %% 11, 0)))
print(sum(frame$id[seq(1, count, by = 7)]))
