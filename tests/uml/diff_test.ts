/**
 * Every kind of damage to what ipvs mode has in the kernel is found and named, and mended without
 * anything else being touched.
 *
 * @module
 */
import { IPVS_DAMAGED } from "../support/stages/damage/damaged_ipvs.ts";
import { testDamage } from "../support/stages/damage/test_damage.ts";
import { GUEST } from "./guest.ts";

testDamage({ ...IPVS_DAMAGED, requirements: () => [GUEST, ...IPVS_DAMAGED.requirements()] });
