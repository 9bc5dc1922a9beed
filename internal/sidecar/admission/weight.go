package admission

import "fmt"

// Bounds of a review and its answer. A review of a real pod has 5 to 40 kB and some hundred values.
const (
	reviewLimitBytes = 3 << 20  // the API server's own limit of an object
	weightLimitBytes = 24 << 20 // of weigh
	depthLimit       = 100
	patchLimitBytes  = 128 << 10
)

// The most that decoding allocates. Strings, and errors that name them, are several copies of the
// text. No value takes more than a container in a list that grows. TestWeightBoundsWhatIsAllocated
// holds both.
const (
	weightPerByte  = 4
	weightPerValue = 900
)

// weigh bounds the bytes that a review becomes when it is decoded. It counts the separators of
// values outside of strings, and builds nothing. The result means nothing for a text that is not
// JSON, but the decoder refuses that before it allocates.
func weigh(text []byte) (int64, error) {
	values, depth, deepest := int64(1), 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			values++
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		case ',':
			values++
		}
	}
	weight := weightPerByte*int64(len(text)) + weightPerValue*values
	switch {
	case deepest > depthLimit:
		return weight, fmt.Errorf("its review nests %d levels deep, of at most %d", deepest, depthLimit)
	case weight > weightLimitBytes:
		return weight, fmt.Errorf("its review has %d values in %d bytes, which is too much", values, len(text))
	}
	return weight, nil
}
