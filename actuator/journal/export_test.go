package journal

// OpenBooted is Open on a machine that was booted then.
var OpenBooted = open
