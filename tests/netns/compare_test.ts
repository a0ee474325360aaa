/**
 * Tests that another process finds no difference when it compares the kernel with an applied plan.
 */
import { testComparisons, testRefusal } from "../support/stages/compare_tests.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";

for (const mode of RULE_MODES) {
  testComparisons(mode);
  testRefusal(mode);
}
