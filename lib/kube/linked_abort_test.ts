import { assertEquals } from "@std/assert";
import { LinkedAbort } from "./linked_abort.ts";

Deno.test("LinkedAbort follows its parent, with the reason", () => {
  const parent = new AbortController();
  using linked = new LinkedAbort(parent.signal);
  assertEquals(linked.signal.aborted, false);
  parent.abort("stop");
  assertEquals([linked.signal.aborted, linked.signal.reason], [true, "stop"]);
});

Deno.test("LinkedAbort is aborted from the start under an aborted parent", () => {
  using linked = new LinkedAbort(AbortSignal.abort("stop"));
  assertEquals(linked.signal.reason, "stop");
});

Deno.test("LinkedAbort.abort() leaves the parent alone", () => {
  const parent = new AbortController();
  using linked = new LinkedAbort(parent.signal);
  linked.abort("enough");
  assertEquals([linked.signal.reason, parent.signal.aborted], ["enough", false]);
});

Deno.test("LinkedAbort no longer follows once it is disposed of", () => {
  const parent = new AbortController();
  const linked = new LinkedAbort(parent.signal);
  linked[Symbol.dispose]();
  parent.abort();
  assertEquals(linked.signal.aborted, false);
});
