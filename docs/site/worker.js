// Lets the search run where a page is opened from the disk: browsers start no worker there, so its script runs in a
// hidden frame that answers by messages, as a worker does. The theme would load such a stand-in from elsewhere.
class IFrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.frame = frame;
    this.loaded = new Promise((done) => window.addEventListener("working", done, { once: true }));
    const page = frame.contentDocument;
    page.open();
    page.write(
      "<script>self.postMessage = (data) => parent.dispatchEvent(new MessageEvent('worked', { data }));<\/script>",
    );
    page.write(`<script src="${url}" onload="parent.dispatchEvent(new Event('working'))"><\/script>`);
    page.close();
    window.addEventListener("worked", (event) => {
      const answer = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(answer);
      if (this.onmessage) this.onmessage(answer);
    });
  }
  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {}
}
if (location.protocol === "file:") {
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
