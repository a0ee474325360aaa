import { assertEquals } from "@std/assert";
import { settle } from "../../tests/support/fakes/fake_clock.ts";
import { whenAborted } from "./when_aborted.ts";

Deno.test("whenAborted() resolves with the signal, and at once for one that is aborted", async () => {
  const controller = new AbortController();
  let resolved = false;
  const waiting = whenAborted(controller.signal).then(() => resolved = true);
  await settle();
  assertEquals(resolved, false);
  controller.abort();
  await waiting;
  await whenAborted(controller.signal);
});
