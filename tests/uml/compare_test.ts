/** Tests that another process finds no difference when it compares IPVS with an applied plan. */
import { testComparisons } from "../support/stages/compare_tests.ts";
import { IPVS_MODE } from "../support/stages/ipvs_mode.ts";
import { GUEST } from "./guest.ts";

const requirements = () => [GUEST, ...IPVS_MODE.requirements()];
// Commands are slow in the guest.
testComparisons({ ...IPVS_MODE, requirements }, 4);
