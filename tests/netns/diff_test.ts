/**
 * Every kind of damage to what a mode has in the kernel is found and named, and mended without
 * anything else being touched: rules keep their handles and counters, and what other software has there
 * stays as it is, byte for byte.
 *
 * @module
 */
import { DAMAGED_MODES } from "../support/stages/damage/damaged_modes.ts";
import { testDamage } from "../support/stages/damage/test_damage.ts";

for (const mode of DAMAGED_MODES) testDamage(mode);
