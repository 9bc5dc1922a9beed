
// Puts what is new in place of what is shown, every two seconds. Without this script the page is as it was when it was asked for.
(() => {
	'use strict';
	const every = 2000, most = 10000;
	const pause = document.getElementById('pause'), news = document.getElementById('news'), moment = document.getElementById('moment');
	let paused = false, timer = 0, asking = null;

	// show takes over what has changed; heads of tables only if their order has, so that they can be used meanwhile.
	function show(text, reordered) {
		const fresh = new DOMParser().parseFromString(text, 'text/html');
		for (const part of fresh.querySelectorAll('[data-live]')) {
			const old = document.getElementById(part.id);
			if (old && (reordered || part.dataset.live !== 'order')) old.replaceChildren(...part.childNodes);
		}
		moment.textContent = fresh.getElementById('moment-new').textContent;
	}

	async function refresh(reordered) {
		clearTimeout(timer);
		if (asking) asking.abort();
		const mine = asking = new AbortController();
		const late = setTimeout(() => mine.abort(), most);
		try {
			const url = new URL(location.href);
			url.searchParams.set('format', 'fragment');
			const answer = await fetch(url, {signal: mine.signal, cache: 'no-store'});
			if (!answer.ok) throw new Error(await answer.text());
			const text = await answer.text();
			if (asking === mine && (reordered || getSelection().isCollapsed)) show(text, reordered);
			if (asking === mine) news.textContent = '';
		} catch (error) {
			if (asking === mine) news.textContent = 'Not refreshed: ' + (error.name === 'AbortError' ? 'no answer' : error.message);
		} finally {
			clearTimeout(late);
			if (asking === mine) later();
		}
	}

	function later() {
		clearTimeout(timer);
		if (!paused && !document.hidden) timer = setTimeout(refresh, every, false);
	}

	pause.hidden = false;
	pause.addEventListener('click', () => {
		paused = !paused;
		pause.setAttribute('aria-pressed', String(paused));
		if (paused) later(); else refresh(false);
	});
	document.addEventListener('visibilitychange', later);
	document.addEventListener('click', async (event) => {
		const link = event.target.closest('thead a');
		if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
		event.preventDefault();
		history.replaceState(null, '', link.href);
		await refresh(true);
		const again = document.getElementById(link.id);
		if (again) again.focus({preventScroll: true});
	});
	later();
})();
