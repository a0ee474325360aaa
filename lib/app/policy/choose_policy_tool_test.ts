import { assert, assertEquals } from "@std/assert";
import {
  type FakeHost,
  fakeHostChecks,
  missingFeature,
} from "../../../tests/support/fakes/fake_host_checks.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { choosePolicyTool, findPolicyTool } from "./policy_settings.ts";

const NO_NFT: FakeHost = { probes: { nftables: [missingFeature("nft")] } };
const NOTHING: FakeHost = {
  probes: { nftables: [missingFeature("nft")], iptables: [missingFeature("ipset")] },
};

Deno.test("findPolicyTool() takes nftables where it works, else iptables", async () => {
  for (
    const [host, tool] of [[{}, "nftables"], [NO_NFT, "iptables"]] as const
  ) {
    assertEquals(await findPolicyTool(fakeHostChecks(host), "auto"), { tool });
  }
});

Deno.test("findPolicyTool() never replaces a tool that was named, and says what it lacks", async () => {
  const hostChecks = fakeHostChecks(NO_NFT);
  assertEquals(await findPolicyTool(hostChecks, "nftables"), {
    tool: "nftables",
    refusal: "nft: no nft (get nft)",
  });
  assertEquals(await findPolicyTool(hostChecks, "iptables"), { tool: "iptables" });
});

Deno.test("findPolicyTool() does not try the tool of the mode that runs again", async () => {
  const asked: string[] = [];
  const hostChecks = fakeHostChecks({}, asked as never);
  await findPolicyTool(hostChecks, "auto", "nftables");
  assertEquals(asked, []);
  await findPolicyTool(hostChecks, "auto", "userspace");
  assertEquals(asked, ["nftables"]);
});

Deno.test("choosePolicyTool() logs an error where nothing works, and goes on with the best", async () => {
  const logger = new MemoryLogger();
  const dependencies = { hostChecks: fakeHostChecks(NOTHING), logger };
  assertEquals(await choosePolicyTool(dependencies, "auto"), "nftables");
  const [line] = logger.lines;
  assertEquals([line?.level, line?.fields.reason], ["error", "nft: no nft (get nft)"]);
});

Deno.test("choosePolicyTool() goes on without rules where relayed connections are judged", async () => {
  const logger = new MemoryLogger();
  const dependencies = { hostChecks: fakeHostChecks(NOTHING), logger };
  assertEquals(await choosePolicyTool(dependencies, "auto", "userspace"), undefined);
  assertEquals(await choosePolicyTool(dependencies, "iptables", "userspace"), "iptables");
  assertEquals(logger.lines.map(({ level }) => level), ["warn", "error"]);
  assert(logger.lines[0]?.message.includes("direct pod-to-pod traffic is not covered"));
});
