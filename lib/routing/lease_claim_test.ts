import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { Lease } from "../api/kinds/lease.ts";
import { LeaseClaim, type LeaseStep } from "./lease_claim.ts";

const SECOND = 1000;

/** An API server with one Lease. */
class Server {
  lease: Lease | undefined;
  #version = 0;

  /** Carries a step out; `undefined` if another candidate was faster. */
  write(step: LeaseStep): Lease | undefined {
    if (step.action === "wait") return undefined;
    const isCurrent = step.action === "create"
      ? this.lease === undefined
      : this.lease?.metadata.resourceVersion === step.resourceVersion;
    if (!isCurrent) return undefined;
    const metadata = { name: "allocator", resourceVersion: `${++this.#version}` };
    return this.lease = { metadata, spec: step.spec };
  }
}

function claim(holder: string): LeaseClaim {
  return new LeaseClaim({ holder, durationSeconds: 3 });
}

/** A candidate reads, and does what is due. */
function turn(candidate: LeaseClaim, server: Server, now: number): string {
  candidate.observe(server.lease, { now });
  const step = candidate.next({ now, wallTime: `${now}` });
  const written = server.write(step);
  if (written) candidate.written(written, { sentAt: now });
  return step.action === "wait" ? `wait ${step.until}` : step.action;
}

Deno.test("LeaseClaim takes a Lease that does not exist, and renews it", () => {
  const server = new Server();
  const a = claim("a");
  assertEquals(turn(a, server, 0), "create");
  assert(a.isHeld(2999) && !a.isHeld(3000));
  assertEquals(turn(a, server, 500), "wait 1000");
  assertEquals(turn(a, server, 1000), "replace");
  assert(a.isHeld(3999));
  assertEquals(server.lease!.spec, {
    holderIdentity: "a",
    leaseDurationSeconds: 3,
    acquireTime: "0",
    renewTime: "1000",
    leaseTransitions: 0,
  });
});

Deno.test("LeaseClaim takes a Lease over after it saw no renewal for its duration", () => {
  const server = new Server();
  const [a, b] = [claim("a"), claim("b")];
  turn(a, server, 0);
  assertEquals(turn(b, server, 2000), "wait 5000");
  assertEquals(turn(b, server, 4999), "wait 5000");
  assertEquals(turn(b, server, 5000), "replace");
  assertEquals(b.holder, "b");
  assertEquals(server.lease!.spec.leaseTransitions, 1);
  assertEquals(turn(a, server, 5001), "wait 8001");
  assert(!a.isHeld(5001) && b.isHeld(5001));
});

Deno.test("LeaseClaim takes a released Lease at once", () => {
  const server = new Server();
  const [a, b] = [claim("a"), claim("b")];
  turn(a, server, 0);
  turn(b, server, 100);
  a.written(server.write(a.release({ now: 200, wallTime: "200" })!)!, { sentAt: 200 });
  assertEquals(a.holder, undefined);
  assert(!a.isHeld(200));
  assertEquals(turn(b, server, 300), "replace");
  assertEquals(a.release({ now: 300, wallTime: "300" }), undefined);
});

Deno.test("LeaseClaim continues after a restart of its holder", () => {
  const server = new Server();
  turn(claim("a"), server, 0);
  const restarted = claim("a");
  assert(!restarted.isHeld(100));
  assertEquals(turn(restarted, server, 100), "replace");
  assertEquals(server.lease!.spec.leaseTransitions, 0);
});

Deno.test("LeaseClaim has one holder at most, whatever is late or lost", () => {
  const event = fc.record({
    candidate: fc.nat(2),
    after: fc.nat(2 * SECOND),
    /** How long the answer takes; requests of others come in between. */
    delay: fc.nat(SECOND),
    isLost: fc.constantFrom(false, false, false, true),
    isRelease: fc.constantFrom(false, false, false, false, true),
  });
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (events) => {
      const server = new Server();
      // Clocks of candidates differ.
      const candidates = ["a", "b", "c"].map((name, index) => ({
        claim: claim(name),
        offset: index * 1_000_000,
      }));
      let now = 0;
      let answers: { readonly at: number; readonly take: () => void }[] = [];
      const check = () => {
        const holders = candidates.filter(({ claim, offset }) => claim.isHeld(now + offset));
        assert(holders.length <= 1, `${holders.length} hold it`);
      };
      for (const { candidate, after, delay, isLost, isRelease } of events) {
        now += after;
        for (const { take } of answers.filter(({ at }) => at <= now)) take();
        answers = answers.filter(({ at }) => at > now);
        check();
        const { claim, offset } = candidates[candidate]!;
        const time = { now: now + offset, wallTime: `${now}` };
        claim.observe(server.lease, time);
        const step = isRelease ? claim.release(time) : claim.next(time);
        const written = step && server.write(step);
        if (written && !isLost && !isRelease) {
          answers.push({
            at: now + delay,
            take: () => claim.written(written, { sentAt: time.now }),
          });
        }
        check();
      }
    }),
    { numRuns: 2000 },
  );
});

Deno.test("LeaseClaim waits for no holder longer than a minute, whatever an edited Lease says", () => {
  const server = new Server();
  const metadata = { name: "allocator", resourceVersion: "7" };
  const edited = { holderIdentity: "x", leaseDurationSeconds: 2_147_483_647, renewTime: "1" };
  server.lease = { metadata, spec: { ...edited, leaseTransitions: 2_147_483_647 } };
  const a = claim("a");
  assertEquals(turn(a, server, 0), "wait 60000");
  assertEquals(turn(a, server, 60_000), "replace");
  assertEquals(server.lease!.spec.leaseTransitions, 2_147_483_647, "the API takes 32 bits");
});

Deno.test("LeaseClaim waits a minute, too, for another holder of a Lease that lasts a day", () => {
  const server = new Server();
  const metadata = { name: "member", resourceVersion: "7" };
  server.lease = { metadata, spec: { holderIdentity: "x", leaseDurationSeconds: 86_400 } };
  const a = new LeaseClaim({ holder: "a", durationSeconds: 86_400 });
  assertEquals(turn(a, server, 0), "wait 60000");
});

/** A Lease as another holder, or a person, wrote it. */
function leaseOf(spec: Partial<Lease["spec"]>): Lease {
  const metadata = { name: "allocator", resourceVersion: "7" };
  return { metadata, spec: { holderIdentity: "x", leaseDurationSeconds: 3, ...spec } };
}

Deno.test("LeaseClaim waits for another holder as long as its own Lease lasts, whatever the other says", () => {
  for (const leaseDurationSeconds of [0, 1]) {
    const server = new Server();
    server.lease = leaseOf({ leaseDurationSeconds });
    assertEquals(turn(claim("a"), server, 0), "wait 3000");
  }
});

Deno.test("LeaseClaim waits for a new holder from its first sight on, also of the same renewal time", () => {
  const a = claim("a");
  a.observe(leaseOf({ renewTime: "1" }), { now: 0 });
  a.observe(leaseOf({ holderIdentity: "y", renewTime: "1" }), { now: 2_000 });
  assertEquals(a.next({ now: 3_000, wallTime: "3" }), { action: "wait", until: 5_000 });
});

for (
  const [what, lease] of [["was deleted", undefined], ["has another holder", leaseOf({})]] as const
) {
  Deno.test(`LeaseClaim does not hold a Lease any more that ${what}`, () => {
    const server = new Server();
    const a = claim("a");
    turn(a, server, 0);
    assert(a.isHeld(100));
    a.observe(lease, { now: 100 });
    assert(!a.isHeld(100));
  });
}

Deno.test("LeaseClaim does not hold a Lease again by the late answer to a renewal before its release", () => {
  const server = new Server();
  const a = claim("a");
  turn(a, server, 0);
  const renewed = server.write(a.next({ now: 1_000, wallTime: "1" }))!;
  a.release({ now: 1_100, wallTime: "1.1" });
  a.written(renewed, { sentAt: 1_000 });
  assert(!a.isHeld(1_200));
});
