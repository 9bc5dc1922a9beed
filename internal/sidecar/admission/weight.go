package admission

import "fmt"

// What a review may be. A review of a real pod is 5 to 40 kB, of some hundred values.
const (
	reviewLimitBytes = 3 << 20 // as much as the API server takes of an object
	weightLimitBytes = 24 << 20
	depthLimit       = 100
	patchLimitBytes  = 128 << 10
)

// What decoding allocates at most: strings, and errors that name them, take as much as the text
// several times; and a value no more than the dearest kind does, which is a container in a list
// that grows. TestWeightBoundsWhatIsAllocated holds that.
const (
	weightPerByte  = 4
	weightPerValue = 900
)

// weigh is what a review may become when it is decoded, in bytes. It counts what separates values,
// outside of strings, and builds nothing: of what is no JSON it says nothing, but the decoder
// refuses that before it allocates.
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
