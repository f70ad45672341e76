package storeactor

import "errors"

// Errors of the file under the store.
var (
	// ErrFileClosed says that the file was closed, or that its process crashed in the model.
	ErrFileClosed = errors.New("storeactor: the database file is closed")
	// ErrViewCutOff says that a read handle was ended under its holder, because it was too old or the file is being closed
	// or mapped again. The reader takes the newest published state and starts again.
	ErrViewCutOff = errors.New("storeactor: the read handle was cut off")
	// ErrFileLocked says that another process holds the lock of the file.
	ErrFileLocked = errors.New("storeactor: the database file is locked by another process")
	// ErrFileDamaged says that the file cannot be read as what it should be; the wrapping text says where and why.
	ErrFileDamaged = errors.New("storeactor: the database file is damaged")
	// ErrDiskFull says that there is no space left on the disk of the database file. What was to be written was not.
	ErrDiskFull = errors.New("storeactor: no space left on the disk of the database file")
	// ErrDefragmentationsWaiting says that too many callers wait for a defragmentation already.
	ErrDefragmentationsWaiting = errors.New("storeactor: too many requests for a defragmentation are waiting")
	// ErrSnapshotsOpen says that as many snapshots are being made and downloaded as may be at a time.
	ErrSnapshotsOpen = errors.New("storeactor: too many snapshots are being downloaded")
	// ErrHashesWaiting says that too many hash requests wait already.
	ErrHashesWaiting = errors.New("storeactor: too many hash requests are waiting")

	errModelKeyEmpty = errors.New("storeactor: a key of the file must not be empty")
)
