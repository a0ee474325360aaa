import { assertEquals } from "@std/assert";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { watchLinks } from "./link_watch.ts";

/** Lines of `ip monitor`, behind a `+` if they are events. Addresses of layer 2 are renewed all the time. */
const LINES = String.raw`
+ 2: eth0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state LOWERLAYERDOWN
+ 2: eth0    inet 192.0.2.2/24 scope global eth0\       valid_lft forever preferred_lft forever
+ Deleted 2: eth0    inet 192.0.2.2/24 scope global dynamic eth0\       valid_lft 86sec preferred_lft 86sec
- 2: eth0    inet 192.0.2.50/32 scope global deprecated dynamic eth0\       valid_lft 2sec preferred_lft 0sec
- 2: eth0    inet6 fd09::50/128 scope global nodad deprecated dynamic \       valid_lft 1sec preferred_lft 0sec
- Deleted 2: eth0    inet6 fd09::50/128 scope global nodad deprecated dynamic \       valid_lft 0sec preferred_lft 0sec
- 1: lo    inet 10.96.0.10/32 scope host lo\       valid_lft forever preferred_lft forever
- 7: veth7@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master cni0 state UP
`.trim().split("\n").map((line) => [line.slice(2), line.startsWith("+")] as const);

Deno.test("watchLinks() reports what changes links and networks, and nothing that kube-relay does all the time", async () => {
  const clock = new FakeClock();
  const end = new AbortController();
  const seen: string[] = [];
  const commands: CommandRunner = {
    run(_tool, _args, options) {
      for (const [line] of LINES) {
        const before = events;
        options?.onLine?.(line);
        if (events > before) seen.push(line);
      }
      end.abort();
      return Promise.reject(new Error("aborted"));
    },
  };
  let events = 0;
  await watchLinks({ clock, commands }, () => void events++, () => {}, end.signal);
  assertEquals(seen, LINES.filter(([, isEvent]) => isEvent).map(([line]) => line));
});
