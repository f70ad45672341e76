//go:build unix && !linux

package disk

// Sync flushes the file; os.File.Sync knows the strongest call of each system.
func (o *osFile) Sync(Point) error { return o.f.Sync() }

// Preallocate only sets the length: there is no portable way to reserve space.
func (o *osFile) Preallocate(size int64) error {
	have, err := o.Size()
	if err != nil || have >= size {
		return err
	}
	return o.f.Truncate(size)
}
