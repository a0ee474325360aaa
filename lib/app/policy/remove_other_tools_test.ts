import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { FakePolicyBackend } from "../../../tests/support/fakes/fake_policy_backend.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { removeOtherTools } from "./remove_other_tools.ts";

Deno.test("removeOtherTools() cleans up after the other tool in both families, and bears its failure", async () => {
  const logger = new MemoryLogger();
  const cleaned: string[] = [];
  const dependencies = {
    ...{ clock: new FakeClock(), commands: new FakeCommandRunner(), random: () => 0, logger },
    policyBackends: {
      nftables: () => {
        throw new Error("the tool in use is not touched");
      },
      iptables: (_: unknown, { family }: { readonly family: "IPv4" | "IPv6" }) => {
        const backend = new FakePolicyBackend(family);
        backend.cleanup = () => {
          cleaned.push(family);
          return family === "IPv4"
            ? Promise.reject(new Error("no iptables"))
            : Promise.resolve({ removed: ["chain A"], failed: [] });
        };
        return backend;
      },
    },
  };
  const { signal } = new AbortController();
  await removeOtherTools(dependencies, {
    ...{ tool: "nftables", signal, syncPeriodMs: 30_000 },
  });
  assertEquals(cleaned, ["IPv4", "IPv6"]);
  const infos = logger.lines.filter(({ level }) => level === "info");
  assertEquals(infos.map(({ fields }) => fields), [{ other: "iptables", what: "chain A" }]);
});
