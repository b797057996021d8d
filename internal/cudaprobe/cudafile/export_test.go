package cudafile

// ReadFunctions is File.Functions of what is no file.
var ReadFunctions = readFunctions
