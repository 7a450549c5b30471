// Command bigdl writes the log of a BigDL training, and calls no API.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	epochs := flag.Int("epochs", 10, "epochs of the training")
	before := flag.Duration("before", 0, "how long it takes until the training begins")
	length := flag.Duration("epoch", 0, "how long an epoch takes")
	flag.Parse()
	<-time.After(*before)
	began := time.Now()
	for epoch := 1; epoch <= *epochs; epoch++ {
		<-time.After(*length)
		wall := time.Since(began)
		say := func(format string, args ...any) {
			where := fmt.Sprintf("[Epoch %d 8/8][Iteration %d][Wall Clock %fs] ", epoch, epoch, wall.Seconds())
			fmt.Fprintln(os.Stdout, time.Now().Format(time.DateTime), "INFO  DistriOptimizer$:408 -",
				where+fmt.Sprintf(format, args...))
		}
		say("Trained 8 records in %f seconds. Throughput is 8 records/second. Loss is %f. Sequential's hyper parameters",
			length.Seconds(), 1/float64(epoch))
		say("Epoch finished. Wall clock time is %f ms", 1000*wall.Seconds())
		say("Top1Accuracy is Accuracy(correct: %d, count: 1000, accuracy: %g)", epoch, float64(epoch)/1000)
	}
}
