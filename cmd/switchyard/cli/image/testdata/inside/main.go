// Command inside is what the images of the tests run: it prints a file of its image.
package main

import (
	"fmt"
	"os"
)

func main() {
	text, err := os.ReadFile("/job/word")
	fmt.Print(string(text), err)
}
