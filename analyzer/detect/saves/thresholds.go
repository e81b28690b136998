package saves

// Checkpoints.
const (
	saves      = 3 // slow ones at least
	habit      = 6 // so many slow ones, then ordinary ones, are a habit that has ended; fewer were chance
	keptSaves  = 8
	saveRise   = 0.26 // ln 1.3
	acrossRise = 0.59 // ln 1.8: against savers of other roles, whose files differ
	saveSigmas = 2.0
	saveNoise  = 0.05
	// The score of a save is 1 where it is as slow as makes a slow save, -1 where it is as
	// usual, and lies between saveDown and saveUp. A unit may climb to saveTop times the
	// height, so a few ordinary saves end no habit.
	saveUp   = 3
	saveDown = -2
	saveTop  = 1.3
	// saveOdds is the chance of a false alarm in a job's saves so far. What the storage does in
	// health is known of the last keptScores, and saveUnseen of a save is taken to be still to come
	// that is as slow as counts. saveTheta and saveSteep bound it.
	saveOdds   = 0.001
	keptScores = 512
	saveUnseen = 0.35
	saveTheta  = 0.1
	saveSteep  = 2.0
	// saveAlarm is the z of all saves since the first slow one together. Saves differ by a fifth
	// on shared storage: three of 512 ranks' in a row above two sigmas are no rarity.
	// The sigma of a few saves is known to a fifth, so 6; 2.5 times as long makes 8.
	// nodeAlarm is that of all of a node's ranks together: heavy tails that meet raise it.
	// Below saveDoubt, by the noise known since, it is withdrawn.
	saveAlarm = 6.0
	nodeAlarm = 7.0
	saveDoubt = 3.0
	// saveLeast, seconds a save more than the peers': less is what a file system's own affairs
	// take, or a busy processor. Saves of 7 ms beside 3 ms three times in a row, and of 58 ms
	// beside 23 ms four times on a machine with six processes for each core, were no fault.
	saveLeast = 0.05
	// aloneNoise is the least noise of who saves without peers: a handful of its own
	// saves may agree by chance, where storage makes them differ by 15 % and more.
	aloneNoise = 0.15
	// fewSavers: so many healthy savers tell their spread about their median. Among
	// fewer a slow one moves that by itself, and stays unseen in it.
	fewSavers = 8
	// fewFreedom over the degrees of freedom widens what few savers tell of their noise.
	fewFreedom = 0.7
	// lonelySaves where fewer than four save: two others are no crowd.
	lonelySaves = 5
	// fewSaves corrects a MAD about the median of three to eight saves.
	fewSaves    = 1.3
	storageRise = 0.69 // ln 2: all savers against their own past
)
