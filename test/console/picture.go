package console

import (
	"bytes"
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
	often := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			often[colour(x, y)]++
		}
	}
	all := make([]color.RGBA, 0, len(often))
	for c := range often {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		if often[a] != often[b] {
			return often[b] - often[a]
		}
		return int(a.R)<<16 + int(a.G)<<8 + int(a.B) - int(b.R)<<16 - int(b.G)<<8 - int(b.B)
	})
	var palette color.Palette
	for _, c := range all[:min(len(all), paletteColours)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for _, c := range all {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, index[colour(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
