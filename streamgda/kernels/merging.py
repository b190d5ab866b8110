"""Merging of counts, means and scatters by the formula of Chan, Golub and LeVeque."""

from streamgda.kernels import inline_kernel, kernel


def two_sum(a, b):
    """Return a + b rounded to float64, and the rounding error (Knuth); works on arrays too."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


scalar_two_sum = inline_kernel(two_sum)


@kernel
def merge_means(other_count, other_mean, other_mean_low, at, count, mean, mean_low, gap, weight):
    """Merge the counts and means of other rows, whose class k is class ``at[k]`` here.

    A mean is the sum of two parts. The scatter, which is left to the caller, is the sum of both,
    and of ``weight[k] gap[k] gap[k]'`` for each class, with `gap` the difference of the means. The
    mean of the heavier part is moved by the smaller distance: the gap is rounded, and subtracting
    the heavier part again would multiply that error by the ratio of the counts.
    """
    d = mean.shape[1]
    for k in range(other_count.shape[0]):
        c, n = at[k], other_count[k]
        total = count[c] + n
        weight[k] = 0.0
        gap[k] = 0.0
        if n > 0 and count[c] > 0:
            heavier = n > count[c]
            share = (count[c] if heavier else n) / total
            weight[k] = (n if heavier else count[c]) * share
            for j in range(d):
                gap[k, j] = (other_mean[k, j] - mean[c, j]) + (
                    other_mean_low[k, j] - mean_low[c, j]
                )
                high, low = mean[c, j], mean_low[c, j] + gap[k, j] * share
                if heavier:
                    high, low = other_mean[k, j], other_mean_low[k, j] - gap[k, j] * share
                mean[c, j], mean_low[c, j] = scalar_two_sum(high, low)
        elif n > 0:
            for j in range(d):
                mean[c, j] = other_mean[k, j]
                mean_low[c, j] = other_mean_low[k, j]
        count[c] = total


@kernel
def add_outer(vector, coefficient, S):
    """Add ``coefficient * vector vector'`` to `S`, a lower triangle or only a diagonal."""
    for i in range(vector.shape[0]):
        if S.ndim == 1:
            S[i] += coefficient * (vector[i] * vector[i])
        else:
            row, value = S[i], vector[i]
            for j in range(i + 1):  # this order of factors keeps duplicate features equal
                row[j] += coefficient * (value * vector[j])
