/**
 * Tests that every kind of damage to a mode's objects in the kernel is found, named and repaired,
 * and that nothing else is touched: rules keep their handles and counters, and foreign objects stay
 * byte for byte the same.
 *
 * @module
 */
import { DAMAGED_MODES } from "../support/stages/damage/damaged_modes.ts";
import { testDamage } from "../support/stages/damage/test_damage.ts";

for (const mode of DAMAGED_MODES) testDamage(mode);
