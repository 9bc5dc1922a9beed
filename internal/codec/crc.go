package codec

import "math/bits"

// The checksum of a gzip member is that of its content. Those of segments are combined into it, as
// zlib's crc32_combine does: a checksum is a remainder modulo a polynomial, appending n bytes
// multiplies it by x^8n, and so what must be known of what is appended is its own checksum and that
// power.

// crcPoly is the polynomial of CRC-32 (RFC 1952), reflected: bit 31 is x^0.
const crcPoly = 0xedb88320

// crcPowers[k] is x^(2^k).
var crcPowers = func() (powers [32]uint32) {
	p := uint32(1) << 30 // x
	for k := range powers {
		powers[k] = p
		p = crcProduct(p, p)
	}
	return powers
}()

// crcProduct is the product of two polynomials.
func crcProduct(a, b uint32) uint32 {
	var p uint32
	for ; a != 0; a <<= 1 {
		p ^= b & -(a >> 31)
		b = b>>1 ^ crcPoly&-(b&1)
	}
	return p
}

// crcShift is x^8n: what a checksum is multiplied by when n bytes are appended to its content.
func crcShift(n int) uint32 {
	p := uint32(1) << 31                                 // x^0
	for rest := uint64(n); rest != 0; rest &= rest - 1 { // #nosec G115 -- a length is not negative
		p = crcProduct(crcPowers[(bits.TrailingZeros64(rest)+3)%32], p) // x^(2^32) is x again
	}
	return p
}

// crcJoin is the checksum of two contents, one after the other, of which the second has the
// checksum b and the shift given.
func crcJoin(a, b, shift uint32) uint32 { return crcProduct(shift, a) ^ b }
