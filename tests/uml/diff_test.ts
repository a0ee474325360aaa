/**
 * Tests that every kind of damage to objects of ipvs mode in the kernel is found, named and
 * repaired, and that nothing else is touched.
 *
 * @module
 */
import { IPVS_DAMAGED } from "../support/stages/damage/damaged_ipvs.ts";
import { testDamage } from "../support/stages/damage/test_damage.ts";
import { GUEST } from "./guest.ts";

testDamage({ ...IPVS_DAMAGED, requirements: () => [GUEST, ...IPVS_DAMAGED.requirements()] });
