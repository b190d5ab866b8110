"""Chan, Golub and LeVeque's merging of counts, means and scatters."""

from streamgda.kernels import inline_kernel, kernel


def two_sum(a, b):
    """Knuth: a + b as the nearest float64 and what that leaves; of arrays too."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


two_sum_of_numbers = inline_kernel(two_sum)


@kernel
def merge(other_count, other_mean, other_mean_low, at, group, count, mean, mean_low, gap, scatter):
    """Merge the counts and means of other rows, whose class k is class ``at[k]`` here.

    Their scatter has been added already; what is missing is that of the distance of the means.
    Means are the sums of two parts. `gap` is scratch, shape (n_features,).
    """
    d = mean.shape[1]
    for k in range(other_count.shape[0]):
        n = other_count[k]
        if n <= 0:
            continue
        c = at[k]
        if count[c] <= 0:
            count[c] = n
            for j in range(d):
                mean[c, j] = other_mean[k, j]
                mean_low[c, j] = other_mean_low[k, j]
            continue
        total = count[c] + n
        share = n / total
        for j in range(d):
            gap[j] = (other_mean[k, j] - mean[c, j]) + (other_mean_low[k, j] - mean_low[c, j])
        add_outer(gap, count[c] * share, scatter[group[c]])
        for j in range(d):
            low = mean_low[c, j] + gap[j] * share
            mean[c, j], mean_low[c, j] = two_sum_of_numbers(mean[c, j], low)
        count[c] = total


@kernel
def add_outer(vector, coefficient, S):
    """Add ``coefficient * vector vector'`` to `S`, a lower triangle or a diagonal alone."""
    for i in range(vector.shape[0]):
        if S.ndim == 1:
            S[i] += coefficient * (vector[i] * vector[i])
        else:
            row, value = S[i], vector[i]
            for j in range(i + 1):  # so that duplicates of features stay duplicates
                row[j] += coefficient * (value * vector[j])
