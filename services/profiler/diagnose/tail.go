package diagnose

import "math"

// tail is the probability that of n packets at least k are lost, each with probability p.
func tail(n, k int, p float64) float64 {
	if k <= 0 {
		return 1
	}
	if k > n {
		return 0
	}
	mean := float64(n) * p
	if float64(k) <= mean {
		return 1 // not rare, and nothing more is asked
	}
	choose := lgamma(n+1) - lgamma(k+1) - lgamma(n-k+1)
	term := math.Exp(choose + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	sum := 0.0
	for i := k; i <= n && term > sum*1e-12; i++ {
		sum += term
		term *= float64(n-i) / float64(i+1) * p / (1 - p)
	}
	return min(sum, 1)
}

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}
