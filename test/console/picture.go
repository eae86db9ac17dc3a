package console

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"slices"
)

// paletteColours is how many colours a picture of 8 bits a pixel has.
const paletteColours = 256

// Small makes a picture a fraction of its size, with the colours that it has most often.
func Small(picture []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	bounds := from.Bounds()
	colour := func(x, y int) color.RGBA {
		r, g, b, _ := from.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	// Colours that are alike share a place: a bucket of four bits of each channel, shown as its most frequent colour.
	type bucket struct {
		all   int
		often map[color.RGBA]int
	}
	buckets := map[color.RGBA]*bucket{}
	key := func(c color.RGBA) color.RGBA { return color.RGBA{c.R >> 4, c.G >> 4, c.B >> 4, 255} }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := colour(x, y)
			b := buckets[key(c)]
			if b == nil {
				b = &bucket{often: map[color.RGBA]int{}}
				buckets[key(c)] = b
			}
			b.all++
			b.often[c]++
		}
	}
	keys := make([]color.RGBA, 0, len(buckets))
	for k := range buckets {
		keys = append(keys, k)
	}
	number := func(c color.RGBA) int { return int(c.R)<<16 + int(c.G)<<8 + int(c.B) }
	slices.SortFunc(keys, func(a, b color.RGBA) int {
		return cmp.Or(buckets[b].all-buckets[a].all, number(a)-number(b))
	})
	var palette color.Palette
	for _, k := range keys[:min(len(keys), paletteColours)] {
		var most color.RGBA
		for c, n := range buckets[k].often {
			if was := buckets[k].often[most]; n > was || n == was && number(c) < number(most) {
				most = c
			}
		}
		palette = append(palette, most)
	}
	index := map[color.RGBA]uint8{}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := colour(x, y)
			i, known := index[c]
			if !known {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
