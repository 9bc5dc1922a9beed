package flowcontrol

// gzipRatio is about how much smaller objects are when they are compressed.
const gzipRatio = 8

// Width is what a large answer of so many bytes counts as.
func Width(size int64, compressed bool) int64 {
	if compressed {
		size /= gzipRatio
	}
	return max(size, LeastWidth)
}

// LeastWidth is what a large answer counts at least: while it waits for its client it keeps the
// pieces that it is sent in, here and in the kernel, however small a part of the whole they are.
const LeastWidth = 192 << 10

// IsLarge tells the bodies that are not written at once.
func IsLarge(size int64) bool { return size < 0 || size > 64<<10 }

// PinnedBytes is what a large body of so many bytes keeps alive.
func PinnedBytes(size int64) int64 { return max(size, LeastWidth) }
