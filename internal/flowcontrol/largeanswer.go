package flowcontrol

const (
	// largeBytes is the size from which on a body is written in pieces.
	largeBytes = 64 << 10
	// LeastWidth is what a large answer counts at least: while it waits for its client it keeps the
	// pieces that it is sent in, here and in the kernel, however small a part of the whole they are.
	LeastWidth = 192 << 10
	// gzipRatio is about how much smaller objects are when they are compressed.
	gzipRatio = 8
)

// IsLarge tells the bodies that are not written at once; -1 is an unknown size.
func IsLarge(size int64) bool { return size < 0 || size > largeBytes }

// Width is what a large answer of so many bytes of JSON counts as.
func Width(size int64, compressed bool) int64 {
	if compressed {
		size /= gzipRatio
	}
	return max(size, LeastWidth)
}

// PinnedBytes is what a large body of so many bytes keeps alive.
func PinnedBytes(size int64) int64 { return max(size, LeastWidth) }
