import { assertEquals } from "@std/assert";
import { withUndottedAddresses } from "./undotted_address.ts";

Deno.test("withUndottedAddresses() writes addresses of ::/96 like other addresses", () => {
  for (
    const [printed, written] of [
      ["::1.2.3.4", "::102:304"],
      ["-d ::255.255.0.1/128 -j X", "-d ::ffff:1/128 -j X"],
      ["--to-destination [::10.0.0.1]:80", "--to-destination [::a00:1]:80"],
      ["::1.2.3.4 . tcp . 80", "::102:304 . tcp . 80"],
      ["::1.2.3.4-::1.2.3.9", "::102:304-::102:309"],
      ["::ffff:0.0.0.0-fd00::1", "::ffff:0:0-fd00::1"],
      ["fd00::1", "fd00::1"],
      ["64:ff9b::1.2.3.4", "64:ff9b::1.2.3.4"],
      ["1.2.3.4", "1.2.3.4"],
    ] as const
  ) {
    assertEquals(withUndottedAddresses(printed), written);
  }
});
