import { assertEquals } from "@std/assert";
import { resolveMode } from "./resolve_mode.ts";

Deno.test("resolveMode() takes the word, and the first mode of the build for none", () => {
  assertEquals(resolveMode("userspace", ["userspace"]), { mode: "userspace" });
  assertEquals(resolveMode("", ["nftables", "userspace"]), { mode: "nftables" });
  assertEquals(resolveMode("ipvs", ["userspace", "ipvs"]), { mode: "ipvs" });
});

Deno.test("resolveMode() never takes another mode than the one asked for", () => {
  for (const mode of ["iptables", "ipvs", "nftables"]) {
    assertEquals(resolveMode(mode, ["userspace"]), {
      problem: `Cannot run in mode '${mode}': this release has userspace only`,
    });
  }
  for (const mode of ["kernelspace", "USERSPACE", " userspace", "auto"]) {
    assertEquals("problem" in resolveMode(mode, ["userspace"]), true, mode);
  }
});
